package systemd_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"vllmhost/hostctl/systemd"
	"vllmhost/hostctl/systemd/systemdtest"
)

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit})
	ctx, c := open(t, srv)
	if err := c.Start(ctx, unit); err != nil {
		t.Fatal(err)
	}
	if u, _ := srv.Unit(unit); u.Active != "active" {
		t.Errorf("after the start the unit is %s", u.Active)
	}
	if err := c.Stop(ctx, unit); err != nil {
		t.Fatal(err)
	}
	if u, _ := srv.Unit(unit); u.Active != "inactive" {
		t.Errorf("after the stop the unit is %s", u.Active)
	}
	if starts, stops := srv.Calls("StartUnit"), srv.Calls("StopUnit"); starts != 1 || stops != 1 {
		t.Errorf("%d starts and %d stops, want 1 and 1", starts, stops)
	}
}

func TestQueuedJobsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{Hang: true}}, Stops: []systemdtest.Outcome{{Hang: true}}})
	ctx, c := open(t, srv)
	if err := c.QueueStart(ctx, unit); err != nil {
		t.Error(err)
	}
	if u, _ := srv.Unit(unit); u.Active != "activating" {
		t.Errorf("the unit is %s, want it on its way", u.Active)
	}
	if err := c.QueueStop(ctx, unit); err != nil {
		t.Error(err)
	}
	if err := c.QueueStop(ctx, "vllm-unknown.service"); err != nil {
		t.Errorf("stopping what does not exist: %v", err)
	}
}

// Each row is one way for a start to end that is not a success, and the sentence for it.
func TestStartFailures(t *testing.T) {
	t.Parallel()
	exited := func(status int32) func(*systemdtest.Unit) {
		return func(u *systemdtest.Unit) {
			u.Active, u.Sub, u.Result, u.ExecMainCode, u.ExecMainStatus = "failed", "failed", "exit-code", 1, status
		}
	}
	for name, test := range map[string]struct {
		unit   systemdtest.Unit
		result string
		want   string
	}{
		"exit status": {
			systemdtest.Unit{Starts: []systemdtest.Outcome{{Result: "failed", After: exited(3)}}}, "failed",
			`cannot start "vllm-a.service": job failed, the unit is failed: result exit-code, main process exited with status 3`,
		},
		"missing program": {
			systemdtest.Unit{Starts: []systemdtest.Outcome{{Result: "failed", After: exited(203)}}}, "failed",
			`cannot start "vllm-a.service": job failed, the unit is failed: result exit-code, main process exited with status 203/EXEC`,
		},
		"killed while it restarts": {
			systemdtest.Unit{Starts: []systemdtest.Outcome{{Result: "failed", After: func(u *systemdtest.Unit) {
				u.Active, u.Sub, u.Result, u.ExecMainCode, u.ExecMainStatus = "activating", "auto-restart", "oom-kill", 2, 9
			}}}}, "failed",
			`cannot start "vllm-a.service": job failed, the unit is activating (auto-restart): result oom-kill, main process killed by SIGKILL`,
		},
		"hook refuses": {
			systemdtest.Unit{Starts: []systemdtest.Outcome{{Result: "canceled", After: func(u *systemdtest.Unit) {
				u.Active, u.Sub, u.Result = "failed", "failed", "exit-code"
				u.Hooks = []systemdtest.Hook{{Setting: "ExecStartPre", Argv: []string{"/usr/bin/vllmhost", "guard", "a"}, Code: 1, Status: 1}}
			}}}}, "canceled",
			`cannot start "vllm-a.service": job canceled, the unit is failed: result exit-code, ExecStartPre=/usr/bin/vllmhost guard a exited with status 1`,
		},
		"done, but over": { // the main process ended with 0 while ExecStartPost= ran
			systemdtest.Unit{Starts: []systemdtest.Outcome{{After: func(u *systemdtest.Unit) {
				u.Active, u.Sub, u.ExecMainCode = "inactive", "dead", 1
			}}}}, "done",
			`cannot start "vllm-a.service": the job is done, but the unit is inactive (dead): main process exited with status 0`,
		},
		"condition": {
			systemdtest.Unit{Starts: []systemdtest.Outcome{{After: func(u *systemdtest.Unit) {
				u.Active, u.Sub, u.ConditionFailed = "inactive", "dead", true
			}}}}, "done",
			`cannot start "vllm-a.service": the job is done, but the unit is inactive (dead): a condition of the unit does not hold`,
		},
		"dependency": {
			systemdtest.Unit{Starts: []systemdtest.Outcome{{Result: "dependency", After: func(u *systemdtest.Unit) {
				u.Active, u.Sub = "inactive", "dead"
			}}}}, "dependency",
			`cannot start "vllm-a.service": job dependency, the unit is inactive (dead)`,
		},
		"cancelled, though it runs": {
			systemdtest.Unit{Starts: []systemdtest.Outcome{{Result: "canceled", After: func(u *systemdtest.Unit) {
				u.Active, u.Sub = "active", "running"
			}}}}, "canceled",
			`cannot start "vllm-a.service": job canceled, the unit is active (running)`,
		},
		"masked": {
			systemdtest.Unit{Load: "masked"}, "",
			`cannot start "vllm-a.service": Unit vllm-a.service is masked`,
		},
		"unknown": {
			systemdtest.Unit{Load: "not-found"}, "",
			`cannot start "vllm-a.service": Unit vllm-a.service not found`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := systemdtest.Start(t)
			test.unit.Name = unit
			srv.Add(test.unit)
			ctx, c := open(t, srv)
			err := c.Start(ctx, unit)
			var jobErr *systemd.JobError
			if !errors.As(err, &jobErr) {
				t.Fatalf("got %v, want a *JobError", err)
			}
			if jobErr.Result != test.result || err.Error() != test.want {
				t.Errorf("\n got %q: %v\nwant %q: %s", jobErr.Result, err, test.result, test.want)
			}
			if name == "unknown" && !errors.Is(err, systemd.ErrNoSuchUnit) {
				t.Error("an unknown unit is not told as ErrNoSuchUnit")
			}
		})
	}
}

func TestStopOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: "vllm-failed.service", Active: "failed"})
	ctx, c := open(t, srv)
	for _, name := range []string{"vllm-unknown.service", "vllm-failed.service"} {
		if err := c.Stop(ctx, name); err != nil {
			t.Error(err)
		}
	}
}

// A signal that never comes costs one poll, not the whole deadline.
func TestLostSignals(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{
		Name:   unit,
		Starts: []systemdtest.Outcome{{Lost: true}, {Lost: true, Result: "failed"}},
		Stops:  []systemdtest.Outcome{{Lost: true}},
	})
	ctx, c := open(t, srv)
	if err := c.Start(ctx, unit); err != nil {
		t.Error(err)
	}
	if err := c.Stop(ctx, unit); err != nil {
		t.Error(err)
	}
	const want = `cannot start "vllm-a.service": the job ended unseen, the unit is failed: result exit-code`
	if err := c.Start(ctx, unit); err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

// The bus ends and comes back while a start is waited for; the job ends before, during or after.
func TestBusRestartsDuringWait(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(*systemdtest.Server){
		"the job ends after it is back": func(srv *systemdtest.Server) {
			srv.RestartBus()
			time.Sleep(200 * time.Millisecond)
			srv.FinishJobs(unit)
		},
		"the job ends while it is away": func(srv *systemdtest.Server) {
			srv.StopBus()
			srv.FinishJobs(unit)
			time.Sleep(200 * time.Millisecond)
			srv.StartBus()
		},
		"twice": func(srv *systemdtest.Server) {
			srv.RestartBus()
			srv.RestartBus()
			srv.FinishJobs(unit)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := systemdtest.Start(t)
			srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{Hang: true}}})
			ctx, c := open(t, srv)
			result := make(chan error, 1)
			go func() { result <- c.Start(ctx, unit) }()
			srv.WaitFor(unit, func(u systemdtest.Unit) bool { return u.Active == "activating" })
			disturb(srv)
			if err := <-result; err != nil {
				t.Error(err)
			}
			if n := srv.Calls("Subscribe"); n < 2 {
				t.Errorf("subscribed %d times, want again after the restart", n)
			}
		})
	}
}

// A call that finds the connection dead is made again on a new one.
func TestBusRestartsBetweenCalls(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit, NeedReload: true})
	ctx, c := open(t, srv)
	srv.RestartBus()
	if err := c.Start(ctx, unit); err != nil {
		t.Error(err)
	}
	srv.RestartBus()
	if reloaded, err := c.ReloadIfNeeded(ctx, unit); !reloaded || err != nil {
		t.Errorf("got %v, %v", reloaded, err)
	}
	if n := srv.Calls("Reload"); n != 1 {
		t.Errorf("%d reloads, want 1", n)
	}
}

// The bus ends after systemd was asked and before it answered.
func TestBusEndsDuringACall(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit})
	ctx, c := open(t, srv)
	srv.OnCall("StartUnit", srv.RestartBus)
	if err := c.Start(ctx, unit); err != nil {
		t.Error(err)
	}
	if n := srv.Calls("StartUnit"); n != 2 {
		t.Errorf("%d calls, want the one without an answer and another", n)
	}
}

// For a moment after a restart the bus is there and systemd is not.
func TestSystemdIsLateOnTheBus(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit})
	ctx, c := open(t, srv)
	srv.LeaveBus()
	result := make(chan error, 1)
	go func() { result <- c.Start(ctx, unit) }()
	time.Sleep(100 * time.Millisecond)
	srv.JoinBus()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{Hang: true, During: func(u *systemdtest.Unit) {
		u.Active, u.Sub = "activating", "start-post"
	}}}})
	_, c := open(t, srv)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := c.Start(ctx, unit)
	const want = `cannot start "vllm-a.service": the unit was still activating (start-post) when the time was up`
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

// The bus goes away for good: the wait ends with its deadline, not later.
func TestDeadlineWithoutBus(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{Hang: true}}})
	_, c := open(t, srv)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- c.Start(ctx, unit) }()
	srv.WaitFor(unit, func(u systemdtest.Unit) bool { return u.Active == "activating" })
	srv.StopBus()
	select {
	case err := <-result:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
	case <-time.After(patience):
		t.Error("the wait outlived its deadline")
	}
}

// A stop that somebody's start cancels is tried once more, and no more than that.
func TestCancelledStop(t *testing.T) {
	t.Parallel()
	again := systemdtest.Outcome{Result: "canceled", After: func(u *systemdtest.Unit) { u.Active, u.Sub = "active", "running" }}
	for name, test := range map[string]struct {
		stops []systemdtest.Outcome
		want  string
	}{
		"once":  {[]systemdtest.Outcome{again, {}}, ""},
		"twice": {[]systemdtest.Outcome{again}, `cannot stop "vllm-a.service": job canceled, the unit is active (running)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := systemdtest.Start(t)
			srv.Add(systemdtest.Unit{Name: unit, Active: "active", Stops: test.stops})
			ctx, c := open(t, srv)
			got := ""
			if err := c.Stop(ctx, unit); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if n := srv.Calls("StopUnit"); n != 2 {
				t.Errorf("stopped %d times, want 2", n)
			}
		})
	}
}

// A stop, from elsewhere, ends a start that is waited for.
func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{Hang: true}},
		Stops: []systemdtest.Outcome{{Takes: 100 * time.Millisecond}}})
	ctx, c := open(t, srv)
	result := make(chan error, 1)
	go func() { result <- c.Start(ctx, unit) }()
	srv.WaitFor(unit, func(u systemdtest.Unit) bool { return u.Active == "activating" })
	if err := c.QueueStop(ctx, unit); err != nil {
		t.Fatal(err)
	}
	const want = `cannot start "vllm-a.service": job canceled, the unit is inactive (dead)`
	if err := <-result; err == nil || err.Error() != want { // not: deactivating, as it was when the start ended
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

// Any local user may send us a signal that looks like systemd's.
func TestForgedSignal(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{Hang: true}}})
	ctx, c := open(t, srv)
	forger, err := dbus.Connect(srv.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer forger.Close()
	result := make(chan error, 1)
	go func() { result <- c.Start(ctx, unit) }()
	srv.WaitFor(unit, func(u systemdtest.Unit) bool { return u.Active == "activating" })
	time.Sleep(50 * time.Millisecond) // until the client knows its job
	forge(t, forger, "failed")
	select {
	case err := <-result:
		t.Errorf("a forged signal ended the wait: %v", err)
	case <-time.After(200 * time.Millisecond):
		srv.FinishJobs(unit)
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
}

// forge sends the signal of the first job's end to every connection by its name, as no match rule can prevent.
func forge(t *testing.T, conn *dbus.Conn, result string) {
	t.Helper()
	var names []string
	if err := conn.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name[0] != ':' {
			continue
		}
		body := []any{uint32(1), dbus.ObjectPath("/org/freedesktop/systemd1/job/1"), unit, result}
		call := conn.Send(&dbus.Message{
			Type: dbus.TypeSignal,
			Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldDestination: dbus.MakeVariant(name),
				dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/systemd1")),
				dbus.FieldInterface:   dbus.MakeVariant("org.freedesktop.systemd1.Manager"),
				dbus.FieldMember:      dbus.MakeVariant("JobRemoved"),
				dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(body...)),
			},
			Body: body,
		}, nil)
		if call.Err != nil {
			t.Fatal(call.Err)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	ctx, c := open(t, srv)
	var wg sync.WaitGroup
	for i := range 20 {
		name := "vllm-" + string(rune('a'+i)) + ".service"
		srv.Add(systemdtest.Unit{Name: name})
		wg.Go(func() {
			for range 3 {
				if err := c.Start(ctx, name); err != nil {
					t.Error(err)
				}
				if err := c.Stop(ctx, name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	srv.RestartBus()
	wg.Wait()
}

// listenSilently returns a socket that accepts and never answers.
func listenSilently(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "silent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "bus"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}
