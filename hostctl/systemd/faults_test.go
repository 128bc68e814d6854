package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"vllmhost/hostctl/systemd"
	"vllmhost/hostctl/systemd/systemdtest"
)

// faultRuns is how often each fault happens.
const faultRuns = 100

// TestFaults has a swap's calls meet what a bus, systemd, and other operators can do to them. Each happens a hundred
// times, with one client: nothing hangs, nothing counts as success that is none, nothing is missed, and nothing is left
// running in the client.
func TestFaults(t *testing.T) {
	for _, fault := range []struct {
		name string
		runs int // 0: faultRuns
		do   func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, n int) error
	}{
		{"JobRemoved is lost", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, n int) error {
			name := fmt.Sprintf("vllm-lost%d.service", n) // side by side: each costs a poll
			srv.Add(systemdtest.Unit{Name: name, Starts: []systemdtest.Outcome{{Lost: true}, {Lost: true, Result: "failed"}}})
			return errors.Join(wantNil(c.Start(ctx, name)), wantError(c.Start(ctx, name), "ended unseen"))
		}},
		{"the job is cancelled", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, _ int) error {
			srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{Hang: true}}})
			result := make(chan error, 1)
			go func() { result <- c.Start(ctx, unit) }()
			srv.WaitFor(unit, func(u systemdtest.Unit) bool { return u.Active == "activating" })
			return errors.Join(wantNil(c.QueueStop(ctx, unit)), wantError(<-result, "job canceled"))
		}},
		{"the job is skipped", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, _ int) error {
			srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{Result: "skipped", After: func(*systemdtest.Unit) {}, During: func(*systemdtest.Unit) {}}}})
			return wantError(c.Start(ctx, unit), "the job is skipped, but the unit is inactive (dead)")
		}},
		{"the signal comes before the answer", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, _ int) error {
			srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{Takes: time.Microsecond}}})
			return errors.Join(wantNil(c.Start(ctx, unit)), wantNil(c.Stop(ctx, unit)))
		}},
		{"the bus restarts", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, _ int) error {
			srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{Hang: true}}})
			result := make(chan error, 1)
			go func() { result <- c.Start(ctx, unit) }()
			srv.WaitFor(unit, func(u systemdtest.Unit) bool { return u.Active == "activating" })
			srv.RestartBus()
			return wantNil(finished(srv, result))
		}},
		{"systemd executes itself again", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, _ int) error {
			// It leaves the bus and comes back with its jobs, and nobody is subscribed any more.
			srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{Hang: true, Result: "failed"}}})
			result := make(chan error, 1)
			go func() { result <- c.Start(ctx, unit) }()
			srv.WaitFor(unit, func(u systemdtest.Unit) bool { return u.Active == "activating" })
			srv.LeaveBus()
			srv.JoinBus()
			return wantError(finished(srv, result), "unit is failed")
		}},
		{"somebody starts it after its stop", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, _ int) error {
			srv.Add(systemdtest.Unit{Name: unit, Active: "active", Sub: "running", Stops: []systemdtest.Outcome{{After: func(u *systemdtest.Unit) {
				u.Active, u.Sub = "active", "running"
			}}}})
			return wantError(c.Stop(ctx, unit), "the unit is active (running)")
		}},
		{"the unit is masked", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, _ int) error {
			srv.Add(systemdtest.Unit{Name: unit, Load: "masked"})
			return wantError(c.Start(ctx, unit), "is masked")
		}},
		{"a condition is false", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, _ int) error {
			srv.Add(systemdtest.Unit{Name: unit, Starts: []systemdtest.Outcome{{After: func(u *systemdtest.Unit) {
				u.Active, u.Sub, u.ConditionFailed = "inactive", "dead", true
			}}}})
			return wantError(c.Start(ctx, unit), "a condition of the unit does not hold")
		}},
		{"the reload is refused", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, _ int) error {
			srv.Add(systemdtest.Unit{Name: unit, NeedReload: true})
			srv.Refuse("Reload", "org.freedesktop.systemd1.ReloadRateLimit")
			_, err := c.ReloadIfNeeded(ctx, unit)
			srv.Refuse("Reload", "")
			_, again := c.ReloadIfNeeded(ctx, unit)
			return errors.Join(wantError(err, "reload"), wantNil(again))
		}},
		{"answers are slow", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, _ int) error {
			srv.Add(systemdtest.Unit{Name: unit})
			srv.OnCall("StartUnit", func() { time.Sleep(20 * time.Millisecond) })
			defer srv.OnCall("StartUnit", nil)
			impatient, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			err := c.Start(impatient, unit)
			return errors.Join(wantError(err, "deadline exceeded"), wantNil(c.Start(ctx, unit)))
		}},
		{"permission is denied", 0, func(ctx context.Context, srv *systemdtest.Server, c *systemd.Client, _ int) error {
			srv.Add(systemdtest.Unit{Name: unit})
			srv.Deny("StartUnit")
			err := c.Start(ctx, unit)
			srv.Refuse("StartUnit", "")
			if !errors.Is(err, systemd.ErrAccessDenied) {
				return fmt.Errorf("got %v, want ErrAccessDenied", err)
			}
			return wantNil(c.Start(ctx, unit))
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			srv := systemdtest.Start(t)
			ctx, c := open(t, srv)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
			defer cancel()
			srv.Add(systemdtest.Unit{Name: "vllm-watched.service"})
			states, err := c.Watch(ctx, "vllm-watched.service")
			if err != nil {
				t.Fatal(err)
			}
			// Once, so that what a client and a bus keep for good is there.
			if err := fault.do(ctx, srv, c, faultRuns); err != nil {
				t.Fatal(err)
			}
			before := runtime.NumGoroutine()
			if strings.Contains(fault.name, "lost") {
				results := make(chan error)
				for n := range faultRuns {
					go func() { results <- fault.do(ctx, srv, c, n) }()
				}
				for n := range faultRuns {
					if err := <-results; err != nil {
						t.Errorf("run %d: %v", n, err)
					}
				}
			} else {
				for n := range faultRuns {
					if err := fault.do(ctx, srv, c, n); err != nil {
						t.Fatalf("run %d: %v", n, err)
					}
				}
			}
			if after := settledGoroutines(before); after > before {
				t.Errorf("%d goroutines before, %d after", before, after)
			}
			// A watch that was there all the time sees what happens next.
			srv.Update("vllm-watched.service", func(u *systemdtest.Unit) { u.StatusText = "after it all" })
			for state := range states {
				if state.StatusText == "after it all" {
					return
				}
			}
			t.Error("a watch ended before it saw what happened after it all")
		})
	}
}

// finished ends a unit's jobs until its start has returned: one whose answer was lost on the way is asked for again.
func finished(srv *systemdtest.Server, result <-chan error) error {
	for {
		srv.FinishJobs(unit)
		select {
		case err := <-result:
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// settledGoroutines counts them once those that are just ending have ended.
func settledGoroutines(least int) int {
	for range 100 {
		if runtime.NumGoroutine() <= least {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return runtime.NumGoroutine()
}

func wantNil(err error) error { return err }

func wantError(err error, text string) error {
	if err == nil || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("got %v, want an error with %q", err, text)
	}
	return nil
}
