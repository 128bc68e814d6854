package testhost

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bareLab is a lab of its own cache; the machine need not be able to boot.
func bareLab(t *testing.T) *Lab {
	t.Helper()
	l := &Lab{cache: t.TempDir(), progress: t.Output()}
	for _, dir := range []string{l.images(), l.layers(), l.running()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// However many runs want a folder at once, one makes it and all see it whole.
func TestOneBuilderAtATime(t *testing.T) {
	l := bareLab(t)
	dir := filepath.Join(l.images(), "release")
	var builds atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			held, err := l.made(t.Context(), dir, func(tmp string) error {
				builds.Add(1)
				if err := os.WriteFile(filepath.Join(tmp, "first"), nil, 0o644); err != nil {
					return err
				}
				time.Sleep(20 * time.Millisecond) // the others arrive
				return os.WriteFile(filepath.Join(tmp, "second"), nil, 0o644)
			})
			if err != nil {
				t.Error(err)
				return
			}
			defer held.release()
			if _, err := os.Stat(filepath.Join(dir, "second")); err != nil {
				t.Errorf("seen half made: %v", err)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("made %d times", n)
	}
}

// A failed or killed build leaves nothing that a later one would take for whole.
func TestFailedBuild(t *testing.T) {
	l := bareLab(t)
	dir := filepath.Join(l.images(), "release")
	if err := os.MkdirAll(dir+".tmp/left-by-a-killed-run", 0o755); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no network")
	_, err := l.made(t.Context(), dir, func(tmp string) error {
		if entries, _ := os.ReadDir(tmp); len(entries) > 0 {
			t.Errorf("the build finds %q", entries)
		}
		if err := os.WriteFile(filepath.Join(tmp, "half"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	for _, path := range []string{dir, dir + ".tmp"} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	held, err := l.made(t.Context(), dir, func(tmp string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	held.release()
}

// Old folders go, unless somebody uses them.
func TestPrune(t *testing.T) {
	l := bareLab(t)
	for _, name := range []string{"old", "used", "new"} {
		held, err := l.made(t.Context(), filepath.Join(l.layers(), name), func(string) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if name != "used" {
			held.release()
		}
		if name != "new" {
			old := time.Now().Add(-2 * layerAge)
			if err := os.Chtimes(filepath.Join(l.layers(), name+".lock"), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := prune(l.layers(), layerAge); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"old": false, "used": true, "new": true} {
		if _, err := os.Stat(filepath.Join(l.layers(), name)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
}

// removeTree takes links for what they are.
func TestRemoveTree(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	gone := filepath.Join(dir, "gone")
	for _, path := range []string{kept + "/file", gone + "/a/b/c", gone + "/d"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(kept, gone+"/a/link"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing
		if err := removeTree(gone); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(gone); err == nil {
		t.Error("still there")
	}
	if _, err := os.Stat(kept + "/file"); err != nil {
		t.Errorf("followed a link: %v", err)
	}
}

func TestCacheDir(t *testing.T) {
	for value, want := range map[string]string{
		"":              DefaultCache,
		"/srv/cache/":   "/srv/cache",
		"cache":         "",
		"/srv/a,b":      "",
		"/srv/a:b":      "",
		`/srv/a\b`:      "",
		"/var/tmp/x/..": "/var/tmp",
	} {
		t.Setenv(CacheEnv, value)
		got, err := cacheDir()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", value, got, err, want)
		}
	}
}

// A note that a killed run left half written never names what is not ours.
func TestCgroupNote(t *testing.T) {
	path := filepath.Join(t.TempDir(), cgroupNote)
	tree := &cgroupTree{dirs: []string{cgroupRoot + "/unified/testhost-x", cgroupRoot + "/systemd/a b/testhost-x"}}
	if err := tree.note(path, Hybrid); err != nil {
		t.Fatal(err)
	}
	layout, got, err := readCgroupNote(path)
	if err != nil || layout != Hybrid || strings.Join(got.dirs, "|") != strings.Join(tree.dirs, "|") {
		t.Errorf("read %v %q, %v", layout, got.dirs, err)
	}
	for _, text := range []string{"", "unified", "unified\n/sys/fs/cgr", "unified\n/sys/fs/cgroup/system.slice\n", "unified\n/etc/testhost-x\n", "unified\n/sys/fs/cgroup/../../../etc/testhost-x\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, got, err := readCgroupNote(path); err != nil || len(got.dirs) != 0 {
			t.Errorf("%q: %q, %v", text, got.dirs, err)
		}
	}
}
