package units

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const name = "vllm-a.service"

// names returns everything in a directory, hidden files too.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestList(t *testing.T) {
	d := Dir{t.TempDir()}
	for _, file := range []string{"vllm-b.service", "vllm-a.service", ".vllm-a.service123", "vllm-a.service.bak", "vllm-.service",
		"vllmhost-recover.service", "vllm-a.socket", "sshd.service", "vllm-new\nline.service"} {
		must(t, os.WriteFile(filepath.Join(d.Path, file), nil, 0o644))
	}
	must(t, os.Symlink("/dev/null", filepath.Join(d.Path, "vllm-masked.service")))
	must(t, os.Mkdir(filepath.Join(d.Path, "vllm-a.service.d"), 0o755))
	must(t, os.Mkdir(filepath.Join(d.Path, "vllm-dir.service"), 0o755))

	got, err := d.List()
	must(t, err)
	want := []string{"vllm-a.service", "vllm-b.service", "vllm-dir.service", "vllm-masked.service"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got, err := (Dir{d.Path + "/absent"}).List(); got != nil || err != nil {
		t.Errorf("a directory that does not exist: got %v, %v, want nothing", got, err)
	}
	if _, err := (Dir{filepath.Join(d.Path, name)}).List(); err == nil {
		t.Error("a file was listed as a directory")
	}
}

func TestWriteReadRemove(t *testing.T) {
	d := Dir{t.TempDir()}
	old := unix.Umask(0o077) // a careful root shell; systemd and users must be able to read units all the same
	defer unix.Umask(old)
	for _, text := range []string{"[Unit]\n", "[Unit]\nDescription=ä\n", "", strings.Repeat("x", MaxSize)} {
		must(t, d.Write(name, []byte(text)))
		got, err := d.Read(name)
		if err != nil || string(got) != text {
			t.Errorf("wrote %d bytes, read %d, %v", len(text), len(got), err)
		}
	}
	if info, err := os.Lstat(filepath.Join(d.Path, name)); err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v, want 0644", info.Mode(), err)
	}
	if diff := cmp.Diff([]string{name}, names(t, d.Path)); diff != "" {
		t.Errorf("left behind (-want +got)\n%s", diff)
	}
	must(t, d.Remove(name))
	must(t, d.Remove(name)) // absent is a success
	if _, err := d.Read(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the removal: got %v, want fs.ErrNotExist", err)
	}
}

func TestReadIsBounded(t *testing.T) {
	d := Dir{t.TempDir()}
	must(t, os.WriteFile(filepath.Join(d.Path, name), make([]byte, MaxSize+1), 0o644))
	if _, err := d.Read(name); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("got %v, want a refusal", err)
	}
}

// systemd takes a unit for outdated when its file is later by a microsecond, so each write must be, whatever the clock
// does.
func TestModificationTimeGrows(t *testing.T) {
	d := Dir{t.TempDir()}
	modified := func() time.Time {
		info, err := os.Lstat(filepath.Join(d.Path, name))
		must(t, err)
		return info.ModTime()
	}
	began := time.Now().Truncate(time.Microsecond)
	must(t, d.Write(name, nil))
	last := modified()
	if last.Before(began) {
		t.Errorf("written at %v, before the test began at %v", last, began)
	}
	for range 50 { // faster than the clock of the file system
		must(t, d.Write(name, nil))
		if m := modified(); m.Sub(last) < time.Microsecond {
			t.Fatalf("%v is not 1 µs after %v", m, last)
		}
		last = modified()
	}
	future := time.Now().Add(48 * time.Hour).Truncate(time.Microsecond).Add(999 * time.Nanosecond)
	must(t, os.Chtimes(filepath.Join(d.Path, name), future, future))
	must(t, d.Write(name, nil))
	if m, want := modified(), future.Truncate(time.Microsecond).Add(time.Microsecond); !m.Equal(want) {
		t.Errorf("over a file from the future: %v, want %v", m, want)
	}
}

// What is no regular file is neither followed, nor waited for, nor replaced, nor removed.
func TestNotRegular(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, []byte("precious"), 0o600))
	for kind, make := range map[string]func(string) error{
		"link":          func(p string) error { return os.Symlink(outside, p) },
		"dangling link": func(p string) error { return os.Symlink("/nowhere", p) },
		"masked":        func(p string) error { return os.Symlink(os.DevNull, p) },
		"directory":     func(p string) error { return os.Mkdir(p, 0o755) },
		"fifo":          func(p string) error { return unix.Mkfifo(p, 0o644) },
		"socket": func(p string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p})
			if err == nil {
				l.SetUnlinkOnClose(false)
				l.Close()
			}
			return err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			d := Dir{shortDir(t)}
			must(t, make(filepath.Join(d.Path, name)))
			before, err := os.Lstat(filepath.Join(d.Path, name))
			must(t, err)
			_, readErr := d.Read(name)
			for op, err := range map[string]error{"read": readErr, "write": d.Write(name, nil), "remove": d.Remove(name)} {
				if !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), d.Path) {
					t.Errorf("%s: got %v, want ErrNotRegular that names the file", op, err)
				}
			}
			after, err := os.Lstat(filepath.Join(d.Path, name))
			if err != nil || !os.SameFile(before, after) {
				t.Errorf("it was replaced: %v", err)
			}
		})
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "precious" {
		t.Errorf("what the link led to is now %q, %v", text, err)
	}
}

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "units-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestHostileNames(t *testing.T) {
	d := Dir{t.TempDir()}
	for _, bad := range []string{"", ".", "..", "../x.service", "a/b.service", ".hidden.service", "a\x00.service", "a\n.service",
		"ä.service", strings.Repeat("a", 250) + ".service"} {
		_, readErr := d.Read(bad)
		_, dropInsErr := d.DropIns(bad)
		_, enabledErr := d.Enabled(bad, target)
		_, targetErr := d.Enabled(name, bad)
		for op, err := range map[string]error{
			"read": readErr, "write": d.Write(bad, nil), "remove": d.Remove(bad), "drop-ins": dropInsErr, "enabled": enabledErr,
			"enable": d.Enable(bad, target), "disable": d.Disable(bad, target),
			"target": targetErr, "enable target": d.Enable(name, bad), "disable target": d.Disable(name, bad),
		} {
			if err == nil || !strings.Contains(err.Error(), "is not a unit name") {
				t.Errorf("%s of %q: got %v, want a refusal", op, bad, err)
			}
		}
	}
	if all := names(t, d.Path); len(all) != 0 {
		t.Errorf("left behind: %q", all)
	}
}

// A Write that was killed leaves a hidden file: the next one of that unit, an hour later, takes it away. Nothing else.
func TestLeftovers(t *testing.T) {
	d := Dir{t.TempDir()}
	yesterday := time.Now().Add(-24 * time.Hour)
	for file, modified := range map[string]time.Time{
		".vllm-a.service7411": yesterday, ".vllm-a.service7412": time.Now(), ".vllm-b.service7413": yesterday,
		".vllm-a.service.swp": yesterday, ".vllm-a.service": yesterday,
	} {
		path := filepath.Join(d.Path, file)
		must(t, os.WriteFile(path, nil, 0o644))
		must(t, os.Chtimes(path, modified, modified))
	}
	must(t, d.Write(name, nil))
	want := []string{".vllm-a.service", ".vllm-a.service.swp", ".vllm-a.service7412", ".vllm-b.service7413", name}
	if diff := cmp.Diff(want, names(t, d.Path)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	d := Dir{filepath.Join(t.TempDir(), "absent")}
	path := filepath.Join(d.Path, name)
	_, err := d.Read(name)
	for want, err := range map[string]error{
		`cannot read "` + path + `": no such file or directory`:  err,
		`cannot write "` + path + `": no such file or directory`: d.Write(name, nil),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("\n got %v\nwant %s", err, want)
		}
	}
}

// unchanged fails the test unless the unit holds a text, has its old time, and is alone.
func unchanged(t *testing.T, d Dir, text []byte, before fs.FileInfo) {
	t.Helper()
	got, err := d.Read(name)
	if err != nil || !bytes.Equal(got, text) {
		t.Errorf("the old file is now %q, %v", got, err)
	}
	if after, err := os.Lstat(filepath.Join(d.Path, name)); err != nil || !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the old file was touched: %v", err)
	}
	for _, file := range names(t, d.Path) {
		if strings.HasPrefix(file, ".") {
			t.Errorf("left behind: %s", file)
		}
	}
}
