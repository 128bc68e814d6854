package testhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A boot is one life of the host's systemd, from its start to its end.
type boot struct {
	leader int           // pid of its PID 1, as this machine counts
	up     bool          // multi-user.target was reached, and commands run inside
	ended  chan struct{} // closed when all its processes are gone
	status error         // of systemd-nspawn; valid once ended is closed
}

// rebootStatus is systemd-nspawn's exit status where the host asked for a
// reboot: with --keep-unit it leaves starting again to its caller
// (EXIT_FORCE_RESTART in nspawn.c, RestartForceExitStatus=133 in its unit).
const rebootStatus = 133

// start boots the host from its disk and waits for multi-user.target.
func (h *Host) start(ctx context.Context) error {
	ctx, leave, err := h.lab.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, bootLimit, fmt.Errorf("multi-user.target was not reached in %v", bootLimit))
	defer cancel()
	booted, err := h.listen()
	if err != nil {
		return err
	}
	defer booted.Close()
	console, err := os.OpenFile(h.consolePath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer console.Close()

	// The process outlives ctx, which bounds the boot alone.
	cmd := h.spawn(context.WithoutCancel(ctx))
	cmd.Stdout, cmd.Stderr = console, console
	err = h.thread.do(func() error {
		if err := h.cgroups.prepare(); err != nil {
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		return fmt.Errorf("cannot start systemd-nspawn: %v", err)
	}
	b := &boot{ended: make(chan struct{})}
	go func() {
		b.status = cmd.Wait()
		close(b.ended)
	}()
	h.mu.Lock()
	h.boot = b
	h.mu.Unlock()
	if err := h.awaitBooted(ctx, b, booted); err != nil {
		return fmt.Errorf("%v does not boot: %w\n%s", h, err, h.consoleTail())
	}
	h.mu.Lock()
	b.up = true
	h.mu.Unlock()
	return nil
}

// spawn is the command that runs the host's systemd.
func (h *Host) spawn(ctx context.Context) *exec.Cmd {
	argv := []string{
		"systemd-nspawn", "--quiet", "--register=no", "--keep-unit",
		"--directory=" + h.root(), "--machine=" + h.id,
		"--private-network", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
		"--console=pipe", "--bind=" + h.socketPath() + ":/run/testhost.sock", "--boot",
	}
	return contained(ctx, h.inCgroup("", argv))
}

// inCgroup returns argv behind a shell that first moves itself to a sub-cgroup
// of the host: a process can only be moved in a v1 hierarchy, not be born there.
func (h *Host) inCgroup(sub string, argv []string) []string {
	files := h.cgroups.join(sub)
	script := `n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ >"$1"; shift; n=$((n-1)); done; exec "$@"`
	shell := append([]string{"/bin/sh", "-ec", script, "testhost", strconv.Itoa(len(files))}, files...)
	return append(shell, argv...)
}

func (h *Host) socketPath() string  { return filepath.Join(h.dir, "booted.sock") }
func (h *Host) consolePath() string { return filepath.Join(h.dir, "console.log") }

// listen makes the socket on which testhost-booted.service reports.
func (h *Host) listen() (*net.UnixConn, error) {
	if err := os.Remove(h.socketPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.ListenUnixgram("unixgram", &net.UnixAddr{Name: h.socketPath(), Net: "unixgram"})
}

// awaitBooted returns when the host says that it is up, or at its end.
func (h *Host) awaitBooted(ctx context.Context, b *boot, booted *net.UnixConn) error {
	heard := make(chan error, 1)
	go func() {
		message := make([]byte, 4096)
		for {
			n, err := booted.Read(message)
			if err != nil || bytes.Contains(message[:n], []byte("READY=1")) {
				heard <- err
				return
			}
		}
	}()
	select {
	case err := <-heard:
		if err != nil {
			return err
		}
	case <-b.ended:
		return fmt.Errorf("systemd-nspawn ended: %v", b.status)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := h.thread.do(func() (err error) {
		b.leader, err = h.cgroups.leader()
		return err
	})
	if err != nil {
		return err
	}
	return h.proveInside(ctx, b)
}

// kill ends the present boot without a word to anybody inside.
func (h *Host) kill() error {
	h.mu.Lock()
	b := h.boot
	h.mu.Unlock()
	if b == nil {
		return nil
	}
	select {
	case <-b.ended:
		return nil // and its pid may be somebody else's by now
	default:
	}
	if b.leader > 0 {
		unix.Kill(b.leader, unix.SIGKILL)
	} else if h.cgroups != nil { // it never came up
		h.thread.do(func() error { killCgroup(h.cgroups.dirs[0]); return nil })
	}
	select {
	case <-b.ended:
		return nil
	case <-time.After(30 * time.Second):
		return errors.New("its processes do not die within 30 s of SIGKILL")
	}
}

// PowerCut ends the host as a power cut does, with SIGKILL to its PID 1 and
// so to all its processes, and boots it again from the same disk. What was
// written but not synced survives, unlike in a real one.
func (h *Host) PowerCut(ctx context.Context) error {
	if err := h.kill(); err != nil {
		return err
	}
	return h.start(ctx)
}

// Reboot asks the host's systemd for a reboot and returns when it has reached
// multi-user.target again.
func (h *Host) Reboot(ctx context.Context) error {
	if err := h.shutdown(ctx, "reboot"); err != nil {
		return err
	}
	return h.start(ctx)
}

// shutdown runs `systemctl VERB` and waits until the host has ended by itself.
func (h *Host) shutdown(ctx context.Context, verb string) error {
	h.mu.Lock()
	b := h.boot
	h.mu.Unlock()
	// Its own status says nothing: the host may be gone before it answers.
	result, err := h.Run(ctx, "systemctl", verb)
	select {
	case <-b.ended:
	case <-ctx.Done():
		return fmt.Errorf("cannot %s %v: %w; systemctl said %q, %v", verb, h, context.Cause(ctx), result.Stderr, err)
	}
	var exit *exec.ExitError
	rebooted := errors.As(b.status, &exit) && exit.ExitCode() == rebootStatus
	if rebooted != (verb == "reboot") {
		return fmt.Errorf("cannot %s %v: systemd-nspawn ended: %v", verb, h, b.status)
	}
	return nil
}

// Ended is closed when the host's systemd has ended, by itself or not. After a
// reboot of the host, ask again.
func (h *Host) Ended() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boot.ended
}

// Rebooting reports whether the host has ended to boot again, as it does where
// somebody typed `reboot` inside; [Host.Resume] then boots it.
func (h *Host) Rebooting() bool {
	h.mu.Lock()
	b := h.boot
	h.mu.Unlock()
	select {
	case <-b.ended:
		var exit *exec.ExitError
		return errors.As(b.status, &exit) && exit.ExitCode() == rebootStatus
	default:
		return false
	}
}

// Resume boots a host that has ended, from the same disk.
func (h *Host) Resume(ctx context.Context) error {
	select {
	case <-h.Ended():
		return h.start(ctx)
	default:
		return fmt.Errorf("%v still runs", h)
	}
}

func (h *Host) consoleTail() string {
	text, err := os.ReadFile(h.consolePath())
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), 25)
}
