package units

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

var text = []byte("[Unit]\nDescription=as it was\n")

// tinyDisk mounts a file system of a few pages for the test.
func tinyDisk(t *testing.T, options string) Dir {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, options)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Skip("NOT TESTED: a full and a read-only disk. Only root may mount one: run this test as root. " +
			"TestWriteFailsHalfway covers a write that fails for other reasons.")
	}
	must(t, err)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return Dir{dir}
}

func TestWriteOnFullDisk(t *testing.T) {
	d := tinyDisk(t, "size=32k,mode=0755")
	must(t, d.Write(name, text))
	before, err := os.Lstat(filepath.Join(d.Path, name))
	must(t, err)
	if err := os.WriteFile(filepath.Join(d.Path, "filler"), make([]byte, 1<<20), 0o644); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	for _, size := range []int{1, 100_000} {
		if err := d.Write(name, make([]byte, size)); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%d bytes: got %v, want ENOSPC", size, err)
		}
		unchanged(t, d, text, before)
	}
	if err := d.Write("vllm-new.service", text); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a new unit: got %v, want ENOSPC", err)
	}
	if _, err := d.Read("vllm-new.service"); err == nil {
		t.Error("a unit that could not be written exists")
	}
	must(t, d.Remove(name)) // needs no space
}

func TestNoInodeLeft(t *testing.T) {
	d := tinyDisk(t, "size=64k,nr_inodes=8,mode=0755")
	must(t, d.Write(name, text))
	before, err := os.Lstat(filepath.Join(d.Path, name))
	must(t, err)
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(d.Path, fmt.Sprint("filler", i)), nil, 0o644)
	}
	if err := d.Write(name, []byte("new")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", err)
	}
	if err := d.Enable(name, target); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("enable: got %v, want ENOSPC", err)
	}
	unchanged(t, d, text, before)
}

func TestReadOnlyDisk(t *testing.T) {
	d := tinyDisk(t, "size=64k,mode=0755")
	must(t, d.Write(name, text))
	must(t, d.Enable(name, target))
	before, err := os.Lstat(filepath.Join(d.Path, name))
	must(t, err)
	must(t, unix.Mount("", d.Path, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	for op, err := range map[string]error{
		"write": d.Write(name, nil), "remove": d.Remove(name), "disable": d.Disable(name, target),
		"enable": d.Enable(name, "graphical.target"),
	} {
		if !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: got %v, want EROFS", op, err)
		}
	}
	unchanged(t, d, text, before)
}

// The same for whoever cannot mount: writing fails halfway at the process's limit of file sizes.
func TestWriteFailsHalfway(t *testing.T) {
	d := Dir{t.TempDir()}
	must(t, d.Write(name, text))
	before, err := os.Lstat(filepath.Join(d.Path, name))
	must(t, err)

	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: old.Max}))
	err = d.Write(name, make([]byte, 2<<20))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &old))
	if !errors.Is(err, unix.EFBIG) {
		t.Errorf("got %v, want EFBIG", err)
	}
	unchanged(t, d, text, before)
}
