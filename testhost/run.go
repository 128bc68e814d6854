package testhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Result is what a command left. Code is its exit status, or 128 plus the
// number of the signal that ended it.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a command inside as root, as an administrator over SSH would, with
// a clean environment, and waits for it. Only a command that cannot be started
// or outlives ctx is an error; how it ended is in the result.
func (h *Host) Run(ctx context.Context, argv ...string) (Result, error) {
	return h.RunInput(ctx, nil, argv...)
}

// RunInput is [Host.Run] with something on standard input.
func (h *Host) RunInput(ctx context.Context, stdin io.Reader, argv ...string) (Result, error) {
	var out, errs bytes.Buffer
	code, err := h.RunIO(ctx, Streams{In: stdin, Out: &out, Err: &errs}, argv...)
	return Result{out.String(), errs.String(), code}, err
}

// Streams are a command's standard streams: nil is /dev/null.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Foreground leaves the command in the caller's process group, so that a
	// terminal's Ctrl-C reaches it.
	Foreground bool
	// Env is added to the clean environment.
	Env []string
}

// RunIO is [Host.Run] with streams of the caller's, for output as it comes.
func (h *Host) RunIO(ctx context.Context, streams Streams, argv ...string) (int, error) {
	h.mu.Lock()
	b := h.boot
	up := b != nil && b.up
	h.mu.Unlock()
	if !up {
		return -1, fmt.Errorf("cannot run %q: %v is not up", argv, h)
	}
	return h.runIn(ctx, b, streams, argv)
}

// runIn runs a command in one boot of the host.
//
// --root is what makes it safe: without it the command gets the root of the
// mount namespace, which may be this machine's where nspawn has moved the
// host's root over it. Then an apt-get meant for the host works here.
func (h *Host) runIn(ctx context.Context, b *boot, streams Streams, argv []string) (int, error) {
	enter := append([]string{"nsenter", "--target=" + strconv.Itoa(b.leader), "--all", "--root", "--wd", "--"}, argv...)
	line := h.inCgroup("payload/testhost", enter)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = append(cleanEnv(), streams.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.In, streams.Out, streams.Err
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if !streams.Foreground {
		// nsenter waits for the command in a second process; the group has both.
		cmd.SysProcAttr.Setpgid = true
		cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	}
	// A daemon that the command left behind may keep its output open.
	cmd.WaitDelay = time.Second
	if err := h.thread.do(cmd.Start); err != nil {
		return -1, fmt.Errorf("cannot run %q in %v: %v", argv, h, err)
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		return -1, fmt.Errorf("%q in %v did not end: %w", argv, h, context.Cause(ctx))
	}
	return exitCode(err)
}

// proveInside makes sure that commands run inside the host and nowhere else:
// they have to read the machine id that was made for it. It only reads.
func (h *Host) proveInside(ctx context.Context, b *boot) error {
	var out bytes.Buffer
	code, err := h.runIn(ctx, b, Streams{Out: &out}, []string{"cat", "/etc/machine-id"})
	if err == nil && (code != 0 || out.String() != h.machineID) {
		err = fmt.Errorf("they read machine id %q (exit status %d), want %q", out.String(), code, h.machineID)
	}
	if err != nil {
		return fmt.Errorf("commands would not run inside the host: %v", err)
	}
	return nil
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0, nil
	case !errors.As(err, &exit):
		return -1, err
	}
	status := exit.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// Check is [Host.Run] for a command that has to exit 0; it returns its output.
func (h *Host) Check(ctx context.Context, argv ...string) (string, error) {
	result, err := h.Run(ctx, argv...)
	if err != nil {
		return "", err
	}
	if result.Code != 0 {
		return "", fmt.Errorf("%q in %v: exit status %d\n%s%s", argv, h, result.Code, result.Stdout, result.Stderr)
	}
	return result.Stdout, nil
}

// WriteFile writes a file inside, owned by root, making its folder if need be.
// It replaces the file as an editor does, by a rename.
func (h *Host) WriteFile(ctx context.Context, name string, data []byte, mode uint32) error {
	script := `mkdir -p -- "$(dirname -- "$1")"; cat >"$1.testhost"; chmod "$2" -- "$1.testhost"; mv -f -- "$1.testhost" "$1"`
	result, err := h.RunInput(ctx, bytes.NewReader(data), "sh", "-ec", script, "sh", path.Clean(name), strconv.FormatUint(uint64(mode), 8))
	if err == nil && result.Code != 0 {
		err = errors.New(strings.TrimSpace(result.Stderr))
	}
	if err != nil {
		return fmt.Errorf("cannot write %q in %v: %v", name, h, err)
	}
	return nil
}

// ReadFile reads a file inside.
func (h *Host) ReadFile(ctx context.Context, name string) ([]byte, error) {
	result, err := h.Run(ctx, "cat", "--", name)
	if err == nil && result.Code != 0 {
		err = errors.New(strings.TrimSpace(result.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %q in %v: %v", name, h, err)
	}
	return []byte(result.Stdout), nil
}

// Journal returns the newest lines of the journal, of all boots of the host,
// and after it the list of failed units: what to read when a test failed.
func (h *Host) Journal(ctx context.Context, lines int) string {
	var text strings.Builder
	for _, argv := range [][]string{
		{"journalctl", "--no-pager", "--quiet", "--output=short-monotonic", "--lines=" + strconv.Itoa(lines)},
		{"systemctl", "--no-pager", "--failed", "--legend=no"},
	} {
		result, err := h.Run(ctx, argv...)
		if err != nil {
			fmt.Fprintf(&text, "%v\n%s\n", err, h.consoleTail())
			break
		}
		text.WriteString(result.Stdout + result.Stderr)
	}
	return text.String()
}
