package systemd_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"vllmhost/hostctl/systemd/systemdtest"
)

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
