package testhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// removeTree deletes path and all below it, but never what is mounted there:
// it compares the mount id of every directory with that of path itself
// (statx(2), STATX_MNT_ID, Linux 5.8) and gives up at the first difference.
// A missing path is no error.
//
// os.RemoveAll would walk into a bind mount of /proc, /dev or of somebody's
// models, and the file system number does not tell a bind mount from a folder.
func removeTree(path string) error {
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return os.Remove(path)
	case err != nil:
		return fmt.Errorf("cannot remove %q: %v", path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	mount, err := mountID(fd)
	if err != nil {
		return fmt.Errorf("cannot remove %q: %v", path, err)
	}
	if err := emptyDir(dir, mount); err != nil {
		return fmt.Errorf("cannot remove %q: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// emptyDir deletes what is in dir, which lies on the mount with that id.
func emptyDir(dir *os.File, mount uint64) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeEntry(dir, name, mount); err != nil {
			return err
		}
	}
	return nil
}

func removeEntry(dir *os.File, name string, mount uint64) error {
	at := int(dir.Fd())
	// O_NOFOLLOW: a link is deleted, never followed.
	fd, err := unix.Openat(at, name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return ignoreMissing(unix.Unlinkat(at, name, 0), dir, name)
	}
	if err != nil {
		return ignoreMissing(err, dir, name)
	}
	sub := os.NewFile(uintptr(fd), dir.Name()+"/"+name)
	defer sub.Close()
	id, err := mountID(fd)
	if err != nil {
		return fmt.Errorf("%s: %v", sub.Name(), err)
	}
	if id != mount {
		return fmt.Errorf("%s is a mount point: %w", sub.Name(), errMounted)
	}
	if err := emptyDir(sub, mount); err != nil {
		return err
	}
	return ignoreMissing(unix.Unlinkat(at, name, unix.AT_REMOVEDIR), dir, name)
}

// errMounted is why removeTree stops at a mount point.
var errMounted = errors.New("something is mounted there; unmount it first")

func ignoreMissing(err error, dir *os.File, name string) error {
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("%s/%s: %v", dir.Name(), name, err)
}

func mountID(fd int) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return 0, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return 0, errors.New("this kernel does not tell mount ids (Linux 5.8 does)")
	}
	return st.Mnt_id, nil
}
