package systemd_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"vllmhost/hostctl/systemd"
	"vllmhost/hostctl/systemd/systemdtest"
)

// await receives states until one satisfies, and fails after patience.
func await(t *testing.T, states <-chan systemd.UnitStatus, holds func(systemd.UnitStatus) bool) systemd.UnitStatus {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case s, ok := <-states:
			if !ok {
				t.Fatal("the watch ended")
			}
			if holds(s) {
				return s
			}
		case <-timeout:
			t.Fatal("the state never came")
		}
	}
}

// wantSignalled fails the test if changes come with the poll, every two seconds, and not when they happen.
func wantSignalled(t *testing.T, srv *systemdtest.Server, states <-chan systemd.UnitStatus) {
	t.Helper()
	began := time.Now()
	const changes = 5
	for i := range changes {
		text := strconv.Itoa(i)
		srv.Update(unit, func(u *systemdtest.Unit) { u.StatusText = text })
		await(t, states, func(s systemd.UnitStatus) bool { return s.StatusText == text })
	}
	if took := time.Since(began); took > changes*time.Second {
		t.Errorf("%d changes took %v: they were polled", changes, took)
	}
}

func isActive(s systemd.UnitStatus) bool { return s.Active == "active" }

func TestWatch(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit})
	ctx, c := open(t, srv)
	watchCtx, stop := context.WithCancel(ctx)
	states, err := c.Watch(watchCtx, unit)
	if err != nil {
		t.Fatal(err)
	}
	if s := <-states; s.Active != "inactive" {
		t.Errorf("first came %s, want the present state", s.Active)
	}
	if err := c.Start(ctx, unit); err != nil {
		t.Fatal(err)
	}
	await(t, states, isActive)
	wantSignalled(t, srv, states)
	stop()
	for range states { // closed: this ends
	}
}

func TestWatchSeesWhatWasNotSignalled(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit})
	ctx, c := open(t, srv)
	states, err := c.Watch(ctx, unit)
	if err != nil {
		t.Fatal(err)
	}
	srv.UpdateSilently(unit, func(u *systemdtest.Unit) { u.Active, u.Sub = "active", "running" })
	await(t, states, isActive)
}

func TestWatchOutlivesTheBus(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit})
	ctx, c := open(t, srv)
	states, err := c.Watch(ctx, unit)
	if err != nil {
		t.Fatal(err)
	}
	srv.StopBus()
	srv.Update(unit, func(u *systemdtest.Unit) { u.Active, u.Sub = "active", "running" })
	srv.StartBus()
	await(t, states, isActive)
	wantSignalled(t, srv, states) // it asked the new bus for signals
}

// Nobody reads for a while: the client works on, and the newest state is what waits.
func TestSlowReaderGetsTheNewest(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit})
	srv.Add(systemdtest.Unit{Name: "vllm-b.service"})
	ctx, c := open(t, srv)
	states, err := c.Watch(ctx, unit)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		srv.Update(unit, func(u *systemdtest.Unit) { u.StatusText = strconv.Itoa(i) })
	}
	if err := c.Start(ctx, "vllm-b.service"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	if s := <-states; s.StatusText != "199" {
		t.Errorf("got state %q of 0 to 199, want the newest", s.StatusText)
	}
}

func TestWatchEndsWithTheClient(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit})
	ctx, c := open(t, srv)
	states, err := c.Watch(ctx, unit)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for range states { // closed: this ends
	}
}
