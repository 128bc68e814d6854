package hostctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"vllmhost/hostctl/gate"
)

// Holder is who holds the host's lock, as it wrote itself down.
type Holder struct {
	Op      string    `json:"op"` // apply, swap, rollback
	ID      string    `json:"id"`
	Summary string    `json:"summary,omitempty"` // "minimax -> kimi-int4"
	User    string    `json:"user"`
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"`
	Step    string    `json:"step,omitempty"`
}

// LockedError says that another operation is under way.
type LockedError struct {
	Holder Holder
	// Interrupted says that its process was killed and is just being started again.
	Interrupted bool
}

func (e *LockedError) Error() string {
	h := e.Holder
	if h.Op == "" {
		return "another operation is under way"
	}
	text := h.Op + " " + h.ID
	if h.Summary != "" {
		text += " (" + h.Summary + ")"
	}
	text += fmt.Sprintf(", started by %s %s ago, is under way", h.User, max(0, time.Since(h.Since)).Round(time.Second))
	if e.Interrupted {
		return text + ", after an interruption"
	}
	if h.Step != "" {
		text += fmt.Sprintf(" at step %q", h.Step)
	}
	return text
}

// lock is the host's one lock for apply, swap and rollback. The kernel drops it with its process.
type lock struct {
	file   *os.File
	holder Holder
}

// maxHolder bounds what is read of another's lock file.
const maxHolder = 64 << 10

// lockInterval is how often a taken lock is tried again. Its end could be waited for, that of an open record not.
const lockInterval = 100 * time.Millisecond

// lock takes the lock, within the time to wait, or returns a *LockedError. An operation that was interrupted has it, too,
// until it is over: it is started again where that is needed. waiting, which may be nil, is told each time.
func (h *Host) lock(ctx context.Context, holder Holder, wait time.Duration, waiting func(*LockedError)) (*lock, error) {
	deadline := time.Now().Add(wait)
	for {
		l, err := h.lockNow(ctx, holder)
		var locked *LockedError
		if !errors.As(err, &locked) || time.Now().After(deadline) {
			return l, err
		}
		if waiting != nil {
			waiting(locked)
		}
		select {
		case <-ctx.Done():
			return nil, errCancelled
		case <-time.After(lockInterval):
		}
	}
}

// errCancelled is why an operation ends before it began.
var errCancelled = errors.New("cancelled")

// lockNow takes the lock at once.
func (h *Host) lockNow(ctx context.Context, holder Holder) (*lock, error) {
	l, err := h.tryLock(holder)
	if err != nil {
		return nil, err
	}
	open, err := h.open()
	if err != nil {
		l.release()
		return nil, err
	}
	for _, o := range open {
		switch {
		case o.ID == holder.ID:
		case o.Op == opApply: // it had no unit; under the lock, nobody works on it any more
			h.interrupted(o.ID)
		default:
			l.release()
			if err := h.takeUp(ctx, o.ID); err != nil {
				return nil, err
			}
			return nil, &LockedError{Interrupted: true, Holder: Holder{Op: o.Op, ID: o.ID, User: o.Request.User, Since: o.Began,
				Summary: o.Summary()}}
		}
	}
	return l, nil
}

// takeUp has an interrupted operation carried out again, unless that is already so.
func (h *Host) takeUp(ctx context.Context, id string) error {
	unit := gate.OperationUnit(id)
	status, err := h.systemd.State(ctx, unit)
	if err != nil || running(status) || status.Job.ID != 0 {
		return err
	}
	return h.systemd.QueueStart(ctx, unit)
}

func (h *Host) tryLock(holder Holder) (*lock, error) {
	if err := gate.MakeRunDir(h.runDir()); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(h.lockPath, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock: %v", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("cannot take the lock %q: %v", h.lockPath, err)
		}
		var other Holder
		data, _ := io.ReadAll(io.LimitReader(f, maxHolder))
		_ = json.Unmarshal(data, &other) // whoever holds it may be just writing itself down
		return nil, &LockedError{Holder: other}
	}
	if holder.User == "" {
		holder.User = userName()
	}
	holder.PID, holder.Since = os.Getpid(), time.Now().UTC()
	l := &lock{f, holder}
	l.write()
	return l, nil
}

// summary notes in the lock what its holder is about.
func (l *lock) summary(text string) {
	l.holder.Summary = text
	l.write()
}

// step notes in the lock what its holder is doing.
func (l *lock) step(name string) {
	l.holder.Step = name
	l.write()
}

// write writes the holder down. It helps whoever finds the lock taken; the lock itself does not depend on it.
func (l *lock) write() {
	data, err := json.Marshal(l.holder)
	if err != nil {
		return
	}
	if l.file.Truncate(0) == nil {
		_, _ = l.file.WriteAt(append(data, '\n'), 0)
	}
}

func (l *lock) release() {
	_ = l.file.Truncate(0)
	l.file.Close()
}

// userName is who asked for the operation: behind sudo, the user that called it.
func userName() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if os.Geteuid() == 0 {
		return "root"
	}
	return fmt.Sprintf("uid %d", os.Geteuid())
}
