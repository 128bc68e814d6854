package units

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// What was kept comes back as the same file, later than what replaced it, and on a full disk too.
func TestKeepAndPutBack(t *testing.T) {
	const name = "vllm-a.service"
	old, next := []byte("old\n"), []byte("new\n")
	d := Dir{Path: t.TempDir()}
	must(t, d.Write(name, old))
	before := inode(t, filepath.Join(d.Path, name))
	must(t, d.Keep(name))
	must(t, d.Write(name, next))
	future := time.Now().Add(time.Hour) // of a clock that was set back since
	must(t, os.Chtimes(filepath.Join(d.Path, name), future, future))
	if list, err := d.List(); err != nil || !slices.Equal(list, []string{name}) {
		t.Errorf("while one is kept the units are %q, %v", list, err)
	}

	must(t, d.PutBack(name))
	if text, err := d.Read(name); err != nil || !bytes.Equal(text, old) {
		t.Errorf("put back %q, %v", text, err)
	}
	if inode(t, filepath.Join(d.Path, name)) != before {
		t.Error("it is another file: putting it back took room on the disk")
	}
	if newer, err := d.NewerThan(name, future); err != nil || !newer {
		t.Errorf("later than what it replaced: %v, %v", newer, err)
	}
	if got := names(t, d.Path); !slices.Equal(got, []string{name}) {
		t.Errorf("left %q", got)
	}
	must(t, d.PutBack(name)) // nothing is kept any more
	must(t, d.Keep(name))
	must(t, d.Keep(name)) // again, after a kill
	must(t, d.Forget(name))
	must(t, d.Forget(name))
	if got := names(t, d.Path); !slices.Equal(got, []string{name}) {
		t.Errorf("left %q", got)
	}
}

func TestKeepNothing(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	must(t, d.Keep("vllm-a.service"))
	must(t, d.PutBack("vllm-a.service"))
	if got := names(t, d.Path); len(got) > 0 {
		t.Errorf("left %q", got)
	}
	// A masked unit is a link, and stays one.
	must(t, os.Symlink("/dev/null", filepath.Join(d.Path, "vllm-a.service")))
	if err := d.Keep("vllm-a.service"); err == nil {
		t.Error("a link was kept")
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}
