package testhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A lock is a flock(2) on a file of the cache. The kernel drops it when its
// holder dies, however it dies: that is how leftovers are told from what a
// living test still uses. Lock files are opened close-on-exec, so no child
// keeps one.
type lock struct{ file *os.File }

// how a lock is taken.
type lockMode int

const (
	shared    lockMode = unix.LOCK_SH
	exclusive lockMode = unix.LOCK_EX
)

// tryLock returns nil and no error where somebody else holds the lock.
func tryLock(path string, mode lockMode) (*lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), int(mode)|unix.LOCK_NB)
	if err == nil {
		return &lock{file}, nil
	}
	file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("cannot lock %q: %v", path, err)
}

// waitLock takes the lock, calling waiting once if it has to wait. It polls:
// a blocked flock(2) cannot be called off.
func waitLock(ctx context.Context, path string, mode lockMode, waiting func()) (*lock, error) {
	for {
		l, err := tryLock(path, mode)
		if l != nil || err != nil {
			return l, err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot lock %q: %w", path, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// release gives the lock back. The file stays: unlinking it would let two
// holders lock two files of one name.
func (l *lock) release() {
	if l != nil {
		l.file.Close()
	}
}
