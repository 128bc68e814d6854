package models_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vllmhost/hostctl/models"
)

func TestLinks(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("root:$6$"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		target string
		want   string
	}{
		"inside":         {"data/real.safetensors", "complete: 3 of 3 shards, 810 B"},
		"outside":        {secret, "corrupt: 2 of 3 shards, 540 B; " + second + " is a link that leads out of the model directory"},
		"outside, dots":  {"../../../../../../etc/passwd", "corrupt: 2 of 3 shards, 540 B; " + second + " is a link that leads out of the model directory"},
		"a device":       {"/dev/zero", "corrupt: 2 of 3 shards, 540 B; " + second + " is a link that leads out of the model directory"},
		"nowhere":        {"data/gone", "incomplete: 2 of 3 shards, 540 B; " + second + " is a link to a file that is missing"},
		"itself":         {second, "corrupt: 2 of 3 shards, 540 B; " + second + " cannot be read: too many levels of symbolic links"},
		"a directory":    {"data", "corrupt: 2 of 3 shards, 540 B; " + second + " is a directory, not a file"},
		"a fifo":         {"data/fifo", "corrupt: 2 of 3 shards, 540 B; " + second + " is a fifo, not a file"},
		"through a link": {"link/real.safetensors", "complete: 3 of 3 shards, 810 B"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := sharded(3)
			m["data/real.safetensors"] = m[second]
			delete(m, second)
			dir := m.write(t, t.TempDir())
			if err := syscall.Mkfifo(filepath.Join(dir, "data/fifo"), 0o600); err != nil {
				t.Fatal(err)
			}
			link(t, "data", filepath.Join(dir, "link"))
			link(t, test.target, filepath.Join(dir, second))
			if got := check(t, dir).String(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// What is not a file is not opened, not even for a moment: to open a device or a fifo has effects.
func TestFifoIsNotOpened(t *testing.T) {
	m := sharded(3)
	delete(m, second)
	dir := m.write(t, t.TempDir())
	fifo := filepath.Join(dir, second)
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		writer, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for a reader
		writer.Close()
		opened <- err
	}()
	for range 100 { // until the writer certainly waits, on a busy machine too
		check(t, dir)
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-opened:
		t.Errorf("it was opened (%v)", err)
	default:
		reader, err := os.OpenFile(fifo, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		reader.Close()
		<-opened
	}
}

// A file that turns into a fifo between two looks at it does not hang the check.
func TestFileTurnsIntoFifo(t *testing.T) {
	dir := sharded(1).write(t, t.TempDir())
	shard, other := filepath.Join(dir, shardFile(1, 1)), filepath.Join(dir, "other")
	if err := syscall.Mkfifo(other, 0o600); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, shard, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
			}
		}
	}()
	seen := make(map[models.State]bool)
	for range 2000 {
		seen[check(t, dir).State] = true
	}
	close(stop)
	<-stopped
	if !seen[models.Complete] || !seen[models.Corrupt] || len(seen) != 2 {
		t.Errorf("seen: %v", seen)
	}
}

// In the Hub's shared cache every file of a snapshot is a link to a blob beside it.
func TestHubCache(t *testing.T) {
	cache := t.TempDir()
	repo := filepath.Join(cache, "models--org--name")
	blobs := model{}
	snapshot := filepath.Join(repo, "snapshots", "0123abc")
	if err := os.MkdirAll(snapshot, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range sharded(3) {
		blobs["hash-of-"+name] = content
		link(t, "../../blobs/hash-of-"+name, filepath.Join(snapshot, name))
	}
	blobs.write(t, filepath.Join(repo, "blobs"))
	if got, want := check(t, snapshot).String(), "complete: 3 of 3 shards, 810 B"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// An administrator's name for it.
	link(t, snapshot, filepath.Join(cache, "current"))
	if got, want := check(t, filepath.Join(cache, "current")).String(), "complete: 3 of 3 shards, 810 B"; got != want {
		t.Errorf("through a link: got %s, want %s", got, want)
	}
	// A blob that is missing, and a link into another repository.
	if err := os.Remove(filepath.Join(repo, "blobs", "hash-of-"+first)); err != nil {
		t.Fatal(err)
	}
	model{"x": []byte("{}")}.write(t, filepath.Join(cache, "models--org--other", "blobs"))
	if err := os.Remove(filepath.Join(snapshot, "config.json")); err != nil {
		t.Fatal(err)
	}
	link(t, "../../../models--org--other/blobs/x", filepath.Join(snapshot, "config.json"))
	want := "corrupt: 2 of 3 shards, 540 B; config.json is a link that leads out of the model directory; " + first + " is a link to a file that is missing"
	if got := check(t, snapshot).String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}
