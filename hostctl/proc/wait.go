package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// WaitExit returns nil once a process has ended, whoever's child it is, or at once when there is none with that pid. A
// zombie has ended. It sleeps on the process's pidfd (pidfd_open(2), Linux 5.10 for its non-blocking form) until then or
// until ctx is done; the error then wraps ctx's.
func WaitExit(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil:
		return fmt.Errorf("cannot watch process %d: %v", pid, err)
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd") // joins Go's own poller, so that no thread is spent on the wait
	defer pidfd.Close()
	stop := context.AfterFunc(ctx, func() { pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot watch process %d: %v", pid, err)
	}
	// A pidfd turns readable when its process ends. The poller may also wake for nothing: look again.
	err = raw.Read(func(fd uintptr) bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n == 1
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("process %d still runs: %w", pid, ctx.Err())
	default:
		return fmt.Errorf("cannot watch process %d: %v", pid, err)
	}
}
