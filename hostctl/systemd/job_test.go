package systemd_test

import (
	"context"
	"errors"
	"testing"
	"time"

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
