package proc_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"vllmhost/hostctl/proc"
)

func TestStatOf(t *testing.T) {
	if _, err := proc.StatOf(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("/bin/true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := proc.StatOf(child.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a process that is gone: %v", err)
	}
}

// A process may call itself what it likes.
func TestStatOfHostileName(t *testing.T) {
	dir := t.TempDir()
	stat := "7 (a) R 1 2 (b) S 1 7 7 0 -1 4194560 1 0 5 0 30 12 0 0 20 0 1 0 4711 1 1"
	if err := os.MkdirAll(filepath.Join(dir, "proc/7"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "proc/7/stat"), []byte(stat), 0o644); err != nil {
		t.Fatal(err)
	}
	want := proc.Stat{MajorFaults: 5, CPU: 420 * time.Millisecond}
	if got, err := (proc.FS{Root: dir}).StatOf(7); got != want || err != nil {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
