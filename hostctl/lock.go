package hostctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"vllmhost/hostctl/gate"
)

// Holder is who holds the host's lock, as it wrote itself down.
type Holder struct {
	Op      string    `json:"op"` // apply, swap
	ID      string    `json:"id"`
	Summary string    `json:"summary,omitempty"` // "minimax -> kimi-int4"
	User    string    `json:"user"`
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"`
	Step    string    `json:"step,omitempty"`
}

// LockedError says that another operation is under way.
type LockedError struct{ Holder Holder }

func (e *LockedError) Error() string {
	h := e.Holder
	if h.Op == "" {
		return "another operation is under way"
	}
	text := h.Op + " " + h.ID
	if h.Summary != "" {
		text += " (" + h.Summary + ")"
	}
	text += fmt.Sprintf(", started by %s %s ago, is under way", h.User, time.Since(h.Since).Round(time.Second))
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

// lock takes the lock at once or returns a *LockedError.
func (h *Host) lock(holder Holder) (*lock, error) {
	if err := gate.MakeRunDir(filepath.Dir(h.lockPath)); err != nil {
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
		return nil, &LockedError{other}
	}
	holder.PID, holder.User, holder.Since = os.Getpid(), userName(), time.Now().UTC()
	l := &lock{f, holder}
	l.write()
	return l, nil
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
