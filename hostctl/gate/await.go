package gate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vllmhost/hostctl/probe"
	"vllmhost/hostctl/proc"
	"vllmhost/unitgen"
)

// Await decides when a started instance counts as ready.
type Await struct {
	Hook
	GPUs GPUs
	// members lists the unit's processes; nil reads its cgroup. Tests have no unit.
	members func() ([]int, error)
}

const (
	// Nothing signals that a socket listens, so this polls, and faster once the log says that the server is starting. It
	// bounds the delay from "answers" to "ready".
	pollInterval = 10 * time.Millisecond
	soonInterval = 2 * time.Millisecond
	// How long to wait after an answer that is not the right one yet.
	retryInterval = 500 * time.Millisecond
	// How often systemd hears how the start is going.
	reportInterval = time.Second
	showInterval   = 200 * time.Millisecond
	// vLLM swallows the SIGTERM that comes while its engine loads, and obeys a second one.
	termInterval = 2 * time.Second
	// How long an engine that failed to become ready has to end by itself.
	failedPatience = 5 * time.Second
	// How much longer a start that moves may take, each time it is seen to move.
	extension = time.Minute
)

// errEnded says that the main process ended.
var errEnded = errors.New("the engine ended before it was ready")

// Run waits until the engine with the main process env.MainPID serves, and returns nil then. It returns an error as soon
// as that process ends, when another process answers in its place, when the start stands still for StallTimeout or
// takes longer than StartTimeout. When ctx ends, which is systemd stopping a unit that is still loading, it sends
// SIGTERM until the engine is gone.
func (a *Await) Run(ctx context.Context, instance string, env Environment) error {
	s, _, _, err := a.loaded(ctx, unitgen.UnitName(instance))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(env.MainPID)
	if err != nil || pid <= 1 {
		return fmt.Errorf("cannot find the engine's process: MAINPID is %q", env.MainPID)
	}
	err = a.await(ctx, s, pid, env)
	if errors.Is(err, errEnded) {
		if reason := lastWords(ctx, env.InvocationID); reason != "" {
			err = fmt.Errorf("%w: %s", err, reason)
		}
	}
	if err != nil {
		a.Notify("STATUS=Failed: " + err.Error())
	}
	return err
}

func (a *Await) await(ctx context.Context, s unitgen.Section, pid int, env Environment) error {
	cgroup, err := proc.CgroupOf(pid)
	if err != nil {
		return errEnded
	}
	if a.members == nil {
		a.members = membersOf(cgroup)
	}
	died := make(chan error, 1)
	go func() { died <- proc.WaitExit(context.WithoutCancel(ctx), pid) }()

	err = a.ready(ctx, s, env, died)
	if ctx.Err() != nil {
		terminate(context.Background(), pid, died, termInterval) // after the one that systemd has just sent
		return errors.New("stopped while loading")
	}
	if err != nil && !errors.Is(err, errEnded) {
		// It never served, so that there is nothing to drain; systemd would wait for TimeoutStopSec.
		patience, cancel := context.WithTimeout(context.Background(), failedPatience)
		defer cancel()
		terminate(patience, pid, died, 0)
	}
	return err
}

func (a *Await) ready(ctx context.Context, s unitgen.Section, env Environment, died <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, s.StartTimeout)
	defer cancel()
	lines, stop := follow(ctx, env.InvocationID)
	defer stop()
	poll, report := time.NewTicker(pollInterval), time.NewTicker(reportInterval)
	defer poll.Stop()
	defer report.Stop()
	l := &loading{Await: a, section: s, began: time.Now(), moved: time.Now(), moving: newMovement(a.members)}
	l.extend()
	var last error
	for {
		select {
		case <-died:
			return errEnded
		case <-ctx.Done():
			if last != nil {
				return fmt.Errorf("not ready after %s (start_timeout): %v", s.StartTimeout, last)
			}
			return fmt.Errorf("not ready after %s (start_timeout); last seen %s", s.StartTimeout, l.log.text(time.Now()))
		case line, open := <-lines:
			if !open {
				lines = nil
				continue
			}
			before := l.log.phase()
			l.line(line)
			if now := l.log.phase(); now != before && now == startingServer && last == nil {
				poll.Reset(soonInterval)
			}
		case <-report.C:
			if err := l.report(); err != nil {
				return err
			}
		case <-poll.C:
			proof, err := a.try(ctx, s, env.APIKey)
			switch {
			case err == nil:
				a.Notify(fmt.Sprintf("STATUS=Serving %s on %s", proof.Model, s.Where()))
				a.Log.Info(fmt.Sprintf("ready after %.1fs: owns %s, answers as %q, a token after %.2fs",
					time.Since(l.began).Seconds(), s.Where(), proof.Model, proof.FirstToken.Seconds()))
				a.compareCache(ctx, s, &l.log)
				return nil
			case isFinal(err):
				return err
			case errors.Is(err, errNotListening), errors.Is(err, probe.ErrNotListening):
			default:
				last = err
				poll.Reset(retryInterval)
			}
		}
	}
}

// try proves once that the instance serves.
func (a *Await) try(ctx context.Context, s unitgen.Section, apiKey string) (Proof, error) {
	if s.FirstRequestTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.FirstRequestTimeout)
		defer cancel()
	}
	return prove(ctx, s, a.members, apiKey)
}

// isFinal reports whether waiting cannot help: the wrong process answers, or the wrong model, or the key is wrong. An
// engine that listens may still answer 503 for a while.
func isFinal(err error) bool {
	var wrong *probe.WrongModelError
	var stranger *strangerError
	return errors.As(err, &wrong) || errors.As(err, &stranger) || errors.Is(err, probe.ErrUnauthorized)
}

// loading is one start under way.
type loading struct {
	*Await
	section unitgen.Section
	began   time.Time
	log     load // what the engine's log says
	told    bool // something new, since the last report
	shown   time.Time
	moved   time.Time // when it was last seen to get on
	moving  *movement
}

// line takes a line of the engine's log. News are shown at once, but not more often than anybody looks; a new phase goes
// to the journal, too.
func (l *loading) line(text string) {
	before := l.log.phase()
	if !l.log.line(text, time.Now()) {
		return
	}
	l.told = true
	if l.log.phase() != before {
		l.Log.Info(l.log.text(time.Now()))
	}
	if time.Since(l.shown) >= showInterval {
		l.notify("")
	}
}

// report tells systemd how the start is going, and asks for more time while it moves. A start that stands still for
// StallTimeout is an error.
func (l *loading) report() error {
	now := time.Now()
	moved := l.moving.moved(now, l.told, l.log.phase().busy())
	l.told = false
	switch {
	case moved:
		l.moved = now
		l.extend()
	case l.section.StallTimeout > 0 && now.Sub(l.moved) >= l.section.StallTimeout:
		return fmt.Errorf("no progress for %s (stall_timeout) while %s", l.section.StallTimeout, l.log.text(now))
	default:
		l.notify("")
	}
	return nil
}

// extend puts off the start timeout of systemd's, so that it comes after ours: ours can say what happened.
func (l *loading) extend() {
	l.notify(fmt.Sprintf("\nEXTEND_TIMEOUT_USEC=%d", (l.section.StallTimeout + extension).Microseconds()))
}

func (l *loading) notify(more string) {
	now := time.Now()
	l.shown = now
	text := l.log.text(now)
	if text != "" {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	l.Notify(fmt.Sprintf("STATUS=%s, %s so far%s", text, now.Sub(l.began).Round(time.Second), more))
}

// terminate sends SIGTERM until the process is gone, the first one after a while, and SIGKILL when ctx ends before. Without
// an end of ctx, systemd kills what is left at TimeoutStopSec.
func terminate(ctx context.Context, pid int, died <-chan error, first time.Duration) {
	sig := syscall.SIGTERM
	for next := first; ; next = termInterval {
		select {
		case <-died:
			return
		case <-ctx.Done():
			sig = syscall.SIGKILL
		case <-time.After(next):
		}
		// The pid cannot be another process's: systemd reaps it only once we see it gone.
		if err := syscall.Kill(pid, sig); err != nil || sig == syscall.SIGKILL {
			return
		}
	}
}
