package gpu

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	systemdRun = "/usr/bin/systemd-run"
	nvidiaSMI  = "/usr/bin/nvidia-smi"
	// smiExitMismatch is nvidia-smi's status for NVML_ERROR_LIB_RM_VERSION_MISMATCH (nvml.h).
	smiExitMismatch = 18
	// maxOutput bounds what is read of one answer.
	maxOutput = 1 << 20
	// unitMargin is how much longer than our patience systemd lets nvidia-smi run.
	unitMargin = 5 * time.Second
)

// answerTimeout is how long nvidia-smi may be silent. Without persistence mode it initialises every GPU first, which takes
// seconds each. A variable for tests.
var answerTimeout = 15 * time.Second

// command returns the command that runs nvidia-smi for at most limit. It is a transient unit of its own, so that a child
// that cannot be killed is not in the control group of whoever asks (systemd-run(1)); systemd ends it when we do not.
func (s System) command(ctx context.Context, limit time.Duration, args ...string) (*exec.Cmd, error) {
	argv := s.SMI
	if argv == nil {
		if _, err := os.Stat(nvidiaSMI); err != nil {
			return nil, ErrNoTool
		}
		argv = []string{systemdRun, "--quiet", "--pipe", "--wait", "--collect", "--service-type=exec",
			"--description=vllmhost: ask nvidia-smi", "--property=LogLevelMax=warning", "--property=TimeoutStopSec=1",
			fmt.Sprintf("--property=RuntimeMaxSec=%d", int((limit + unitMargin).Seconds())), nvidiaSMI}
	}
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], args...)...)
	cmd.Env = []string{} // of ours nothing concerns them
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 100 * time.Millisecond // the pipes may live longer, with a child that does not die
	return cmd, nil
}

// ask runs nvidia-smi once and returns its output.
func (s System) ask(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	cmd, err := s.command(ctx, answerTimeout, args...)
	if err != nil {
		return "", err
	}
	var out, failure limited
	cmd.Stdout, cmd.Stderr = &out, &failure
	err = cmd.Run()
	if ctx.Err() != nil && err != nil {
		return "", ErrNoAnswer
	}
	if err != nil {
		return "", failed(err, out.String()+failure.String())
	}
	return out.String(), nil
}

// follow runs nvidia-smi with --loop-ms, and calls line with each line it prints until line returns false. When it is silent
// for too long, the error is ErrNoAnswer.
func (s System) follow(ctx context.Context, every time.Duration, line func(string) bool, args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := time.Hour
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	cmd, err := s.command(ctx, limit, append(args, fmt.Sprintf("--loop-ms=%d", every.Milliseconds()))...)
	if err != nil {
		return err
	}
	var failure limited
	cmd.Stderr = &failure
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("cannot run nvidia-smi: %v", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot run nvidia-smi: %v", err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			select {
			case lines <- scan.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	var last string
	silence := time.NewTimer(answerTimeout)
	defer silence.Stop()
	for {
		select {
		case text, open := <-lines:
			if !open {
				return failed(cmd.Wait(), last+"\n"+failure.String())
			}
			silence.Reset(answerTimeout)
			last = text
			if !line(text) {
				end(cmd, cancel)
				return nil
			}
		case <-silence.C:
			end(cmd, cancel)
			return ErrNoAnswer
		case <-ctx.Done():
			end(cmd, cancel)
			return ctx.Err()
		}
	}
}

// end ends nvidia-smi without waiting for it: SIGTERM lets systemd-run stop the unit, and what is left when its pipe is
// gone or its time is over, systemd ends.
func end(cmd *exec.Cmd, cancel context.CancelFunc) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	go func() {
		time.AfterFunc(time.Second, cancel)
		_ = cmd.Wait()
	}()
}

// failed says why nvidia-smi ended as it did. What it prints about an error, it prints to its output.
func failed(err error, said string) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return errors.New("nvidia-smi ended by itself")
	case errors.As(err, &exit) && exit.ExitCode() == smiExitMismatch, strings.Contains(said, "version mismatch"):
		return mismatch(said)
	}
	if text := strings.Join(strings.Fields(said), " "); text != "" {
		return fmt.Errorf("nvidia-smi failed: %s (%v)", text, err)
	}
	return fmt.Errorf("cannot run nvidia-smi: %v", err)
}

// libraryVersionText finds the version in "NVML library version: 580.159".
var libraryVersionText = regexp.MustCompile(`library version: ([\d.]+)`)

func mismatch(said string) error {
	e := &MismatchError{}
	if found := libraryVersionText.FindStringSubmatch(said); found != nil {
		e.Library = found[1]
	}
	return e
}

// limited keeps the first maxOutput bytes. (An embedded buffer would be read into past the limit, by its ReadFrom.)
type limited struct{ buffer bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.buffer.Write(p[:min(len(p), max(0, maxOutput-l.buffer.Len()))])
	return len(p), nil
}

func (l *limited) String() string { return l.buffer.String() }
