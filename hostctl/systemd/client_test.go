package systemd_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vllmhost/hostctl/systemd"
	"vllmhost/hostctl/systemd/systemdtest"
)

const unit = "vllm-a.service"

// patience bounds what would otherwise hang; nothing is expected to take that long.
const patience = 20 * time.Second

func open(t *testing.T, srv *systemdtest.Server) (context.Context, *systemd.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	c, err := systemd.Open(ctx, systemd.Options{Address: srv.Address()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return ctx, c
}

func TestOpenUnreachable(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.StopBus()
	for name, address := range map[string]string{
		"bus is down":  srv.Address(),
		"no socket":    "unix:path=" + t.TempDir() + "/bus",
		"no transport": "carrier-pigeon",
	} {
		_, err := systemd.Open(t.Context(), systemd.Options{Address: address})
		if !errors.Is(err, systemd.ErrUnreachable) || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: got %v, want ErrUnreachable that names %s", name, err, address)
		}
	}
}

func TestOpenWithoutSystemdOnTheBus(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.LeaveBus()
	if _, err := systemd.Open(t.Context(), systemd.Options{Address: srv.Address()}); !errors.Is(err, systemd.ErrUnreachable) {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
}

func TestOpenIsBoundedByTheContext(t *testing.T) {
	t.Parallel()
	silent := listenSilently(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := systemd.Open(ctx, systemd.Options{Address: "unix:path=" + silent})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, systemd.ErrUnreachable) {
		t.Errorf("got %v, want ErrUnreachable by the deadline", err)
	}
}

// The context of Open bounds the connecting, not the client's life.
func TestClientOutlivesTheContextOfOpen(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit})
	ctx, cancel := context.WithCancel(t.Context())
	c, err := systemd.Open(ctx, systemd.Options{Address: srv.Address()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cancel()
	if err := c.Start(t.Context(), unit); err != nil {
		t.Error(err)
	}
	if n := srv.Calls("Subscribe"); n != 1 {
		t.Errorf("subscribed %d times, want once: the first connection should still be in use", n)
	}
}

func TestClosedClient(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	ctx, c := open(t, srv)
	c.Close()
	if _, err := c.Unit(ctx, unit); err == nil {
		t.Error("a closed client still reads units")
	}
	if n := srv.Calls("Subscribe"); n != 1 {
		t.Errorf("a closed client connected again (%d subscriptions)", n)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	ctx, c := open(t, srv)
	for text, want := range map[string]int{
		"252.39-1~deb12u1": 252, "257.13-1~deb13u1": 257, "v255-2.fc40": 255, "249": 249, "unknown": 0, "": 0,
	} {
		srv.SetVersion(text)
		got, err := c.Version(ctx)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("version %q: got %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestReloadIfNeeded(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: "vllm-fresh.service"})
	srv.Add(systemdtest.Unit{Name: "vllm-stale.service", NeedReload: true})
	srv.Add(systemdtest.Unit{Name: "vllm-stale2.service", NeedReload: true})
	ctx, c := open(t, srv)
	for _, step := range []struct {
		names   []string
		want    bool
		reloads int
	}{
		{nil, false, 0},
		{[]string{"vllm-fresh.service", "vllm-unknown.service"}, false, 0},
		{[]string{"vllm-fresh.service", "vllm-stale.service", "vllm-stale2.service"}, true, 1},
		{[]string{"vllm-fresh.service", "vllm-stale.service", "vllm-stale2.service"}, false, 1},
	} {
		got, err := c.ReloadIfNeeded(ctx, step.names...)
		if got != step.want || err != nil {
			t.Errorf("%v: got %v, %v, want %v", step.names, got, err, step.want)
		}
		if n := srv.Calls("Reload"); n != step.reloads {
			t.Errorf("%v: %d reloads so far, want %d", step.names, n, step.reloads)
		}
	}
}

func TestKillAndResetFailed(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit, Active: "active", MainPID: 4711})
	ctx, c := open(t, srv)
	if err := c.Kill(ctx, unit, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if u, _ := srv.Unit(unit); u.Active != "failed" {
		t.Errorf("after SIGKILL the unit is %s", u.Active)
	}
	if err := c.ResetFailed(ctx, unit); err != nil {
		t.Error(err)
	}
	if u, _ := srv.Unit(unit); u.Active != "inactive" {
		t.Errorf("after a reset the unit is %s", u.Active)
	}
	// What is not there needs neither.
	if err := c.Kill(ctx, "vllm-unknown.service", syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := c.ResetFailed(ctx, "vllm-unknown.service"); err != nil {
		t.Error(err)
	}
}

func TestAccessDenied(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit, NeedReload: true})
	for _, method := range []string{"StartUnit", "StopUnit", "KillUnit", "ResetFailedUnit", "Reload"} {
		srv.Deny(method)
	}
	ctx, c := open(t, srv)
	_, reload := c.ReloadIfNeeded(ctx, unit)
	for op, err := range map[string]error{
		"start": c.Start(ctx, unit), "stop": c.Stop(ctx, unit),
		"queue start": c.QueueStart(ctx, unit), "queue stop": c.QueueStop(ctx, unit),
		"kill": c.Kill(ctx, unit, syscall.SIGTERM), "reset": c.ResetFailed(ctx, unit), "reload": reload,
	} {
		if !errors.Is(err, systemd.ErrAccessDenied) || !strings.Contains(err.Error(), "Interactive authentication required") {
			t.Errorf("%s: got %v, want ErrAccessDenied in systemd's words", op, err)
		}
	}
	if _, err := c.Unit(ctx, unit); err != nil {
		t.Errorf("reading needs no right: %v", err)
	}
}

// A name that D-Bus cannot carry would end the connection, for everybody who uses it.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: unit})
	ctx, c := open(t, srv)
	for _, name := range []string{"", "vllm-a", "a/b.service", "a\x00.service", "\xff.service", "a b.service", "ä.service",
		strings.Repeat("a", 250) + ".service"} {
		_, unitErr := c.Unit(ctx, name)
		_, watchErr := c.Watch(ctx, name)
		_, reloadErr := c.ReloadIfNeeded(ctx, name)
		for op, err := range map[string]error{
			"start": c.Start(ctx, name), "stop": c.Stop(ctx, name), "kill": c.Kill(ctx, name, syscall.SIGTERM),
			"reset": c.ResetFailed(ctx, name), "unit": unitErr, "watch": watchErr, "reload": reloadErr,
		} {
			if err == nil || !strings.Contains(err.Error(), "is not a unit name") {
				t.Errorf("%s of %q: got %v, want a refusal", op, name, err)
			}
		}
	}
	if err := c.Start(ctx, unit); err != nil || srv.Calls("Subscribe") != 1 {
		t.Errorf("the connection suffered: %v, %d subscriptions", err, srv.Calls("Subscribe"))
	}
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
