package testhost

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// A thread is one operating system thread in a mount namespace of its own.
// What is mounted there is seen by nobody else and is gone, without anything
// to undo, when the thread and its children are: also after kill -9.
//
// Children are forked by the thread, so that they live in its namespace and
// their parent death signal (PR_SET_PDEATHSIG, which watches the thread, not
// the process) follows it.
type thread struct {
	calls chan func()
	ended chan struct{}
}

// newThread starts a thread whose mounts are private.
func newThread() (*thread, error) {
	t := &thread{calls: make(chan func()), ended: make(chan struct{})}
	ready := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		err := privateMounts()
		ready <- err
		if err != nil {
			return
		}
		for {
			select {
			case call := <-t.calls:
				call()
			case <-t.ended:
				return
			}
		}
	}()
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("cannot make a mount namespace: %v", err)
	}
	return t, nil
}

// do runs f on the thread and waits for it.
func (t *thread) do(f func() error) error {
	result := make(chan error, 1)
	select {
	case t.calls <- func() { result <- f() }:
		return <-result
	case <-t.ended:
		return errors.New("the host is closed")
	}
}

// end lets the thread go, and with it the mounts that no child uses. It is
// called once.
func (t *thread) end() { close(t.ended) }

// privateMounts gives the calling thread its own mount namespace, which tells
// nothing to others and in which "/" is a mount point.
//
// In a chroot it is not. Neither systemd-nspawn nor mount(8) can then change
// how mounts propagate; and, worse, whoever enters the namespace later, as
// nsenter(1) does, finds himself outside of the chroot. So: step out to the
// root of the namespace (setns(2) to the namespace one is in does just that),
// bind the chroot's directory on itself, make that the root of the namespace
// and let go of the rest.
func privateMounts() error {
	// setns to a mount namespace wants a thread that shares its root and
	// working directory with no other one.
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %v (CAP_SYS_ADMIN is needed)", err)
	}
	isMount, err := rootIsMountPoint()
	if err != nil {
		return err
	}
	if !isMount {
		if err := makeChrootTheRoot(); err != nil {
			return fmt.Errorf("this is a chroot, and its root directory cannot be made a mount point: %v", err)
		}
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

func rootIsMountPoint() (bool, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_BASIC_STATS, &st); err != nil {
		return false, err
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

func makeChrootTheRoot() error {
	root, err := os.Open("/")
	if err != nil {
		return err
	}
	defer root.Close()
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	self, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	defer self.Close()
	if err := unix.Setns(int(self.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("setns: %v", err)
	}
	// Now "/" is the namespace's own root; the chroot has a path in it.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Fchdir(int(root.Fd())); err != nil {
		return err
	}
	path, err := unix.Getwd()
	if err != nil {
		return err
	}
	if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	// pivot_root(2), "pivot_root(".", ".")": the old root ends up below the new
	// one, where it is detached.
	if err := unix.Chdir(path); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %v", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Chdir(cwd)
}
