package proc_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"vllmhost/hostctl/proc"
)

// only is a /proc with this process in it and no other.
func only(t *testing.T) proc.FS {
	t.Helper()
	self := strconv.Itoa(os.Getpid())
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/"+self, filepath.Join(root, "proc", self)); err != nil {
		t.Fatal(err)
	}
	return proc.FS{Root: root}
}

func identity(t *testing.T, path string) proc.FileID {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return proc.FileID{Dev: stat.Dev, Ino: stat.Ino}
}

// A file is in use while it is open or mapped, also when it has no name any more.
func TestFileUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "segment")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	id := identity(t, path)
	used := func(when string, want bool) {
		t.Helper()
		users, hidden, err := only(t).FileUsers(map[proc.FileID]string{id: "segment"})
		if err != nil || hidden != 0 {
			t.Fatalf("%s: %d hidden, %v", when, hidden, err)
		}
		if got := slices.Equal(users[id], []int{os.Getpid()}); got != want {
			t.Errorf("%s: users %v", when, users)
		}
	}
	used("open", true)
	data, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	used("mapped", true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	used("mapped, without a name", true)
	if err := syscall.Munmap(data); err != nil {
		t.Fatal(err)
	}
	used("given up", false)
}

func TestDeviceUsers(t *testing.T) {
	for range 2 {
		null, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
	}
	users, err := only(t).DeviceUsers("/dev/nul")
	if err != nil || users[os.Getpid()]["/dev/null"] < 2 {
		t.Errorf("got %v, %v", users, err)
	}
	if users, err := only(t).DeviceUsers("/dev/nvidia"); err != nil || len(users) != 0 {
		t.Errorf("of GPUs: %v, %v", users, err)
	}
}
