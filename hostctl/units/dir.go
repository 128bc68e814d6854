// Package units keeps unit files in a directory: it lists, reads, writes and removes them, and makes and removes the
// links that enable them. Every change is atomic and on disk when the call returns.
//
// It owns the files, not their content: which unit is whose, and what it should say, is decided elsewhere. It does not
// talk to systemd.
package units

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// MaxSize is the size in bytes of the largest unit file that is read.
const MaxSize = 1 << 20

// ErrNotRegular says that something of a unit's name is no regular file: a link (such as a masked unit, which is a
// link to /dev/null, or one linked from elsewhere), a directory, a device.
var ErrNotRegular = errors.New("not a regular file")

// Dir is a directory of unit files, such as /etc/systemd/system. Its path is absolute: links to its files hold it.
type Dir struct{ Path string }

// List returns the names vllm-*.service, sorted. Whatever has such a name is listed, links and directories too: they
// are in the way of a unit that is to be written, and Read says what they are. A directory that does not exist is
// empty.
func (d Dir) List() ([]string, error) {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list %q: %w", d.Path, cause(err))
	}
	var names []string
	for _, e := range entries { // ReadDir sorts
		instance, isService := strings.CutSuffix(e.Name(), ".service")
		instance, isOurs := strings.CutPrefix(instance, "vllm-")
		if isService && isOurs && instance != "" && checkName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Read returns the text of a unit file. The error is fs.ErrNotExist where there is none, and ErrNotRegular where
// something else has its name; a file larger than MaxSize is refused.
func (d Dir) Read(name string) ([]byte, error) {
	text, err := d.read(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", d.file(name), cause(err))
	}
	return text, nil
}

func (d Dir) read(name string) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	// O_NONBLOCK: opening a FIFO would wait for a writer.
	f, err := os.OpenFile(d.file(name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) { // a link; a socket
		return nil, ErrNotRegular
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxSize {
		return nil, fmt.Errorf("larger than %d bytes", MaxSize)
	}
	return text, nil
}

// Write makes text the content of a unit file, which is then readable by all (0644). On any error before the file is
// replaced the old one is as it was, and nothing else is left behind. Something of that name that is no regular file
// is not replaced: ErrNotRegular.
//
// The time of modification is now, but at least 1 µs after that of the file replaced, also when the clock went back:
// systemd tells by a later time, in microseconds, that its definition is outdated.
func (d Dir) Write(name string, text []byte) error {
	if err := d.write(name, text); err != nil {
		return fmt.Errorf("cannot write %q: %w", d.file(name), cause(err))
	}
	return nil
}

func (d Dir) write(name string, text []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	modified, err := d.later(name, time.Now())
	if err != nil {
		return err
	}
	d.removeLeftovers(name)
	f, err := renameio.NewPendingFile(d.file(name), renameio.WithTempDir(d.Path), renameio.WithStaticPermissions(0o644))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := os.Chtimes(f.Name(), modified, modified); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return syncDir(d.Path)
}

// later returns a time of modification for a new unit file: now, or just after that of the file it replaces. Something
// else of that name is ErrNotRegular.
func (d Dir) later(name string, now time.Time) (time.Time, error) {
	modified := now.Truncate(time.Microsecond)
	switch old, err := os.Lstat(d.file(name)); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return modified, err
	case !old.Mode().IsRegular():
		return modified, ErrNotRegular
	default:
		if least := old.ModTime().Truncate(time.Microsecond).Add(time.Microsecond); modified.Before(least) {
			modified = least
		}
	}
	return modified, nil
}

// removeLeftovers removes the temporary files that a killed Write of this unit left, ".NAME" with a random number.
// systemd does not read them, so a failure does not matter. One of a Write that may still run is younger.
func (d Dir) removeLeftovers(name string) {
	entries, _ := os.ReadDir(d.Path)
	for _, e := range entries {
		number, isTemp := strings.CutPrefix(e.Name(), "."+name)
		if !isTemp || number == "" || strings.Trim(number, "0123456789") != "" {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(filepath.Join(d.Path, e.Name()))
		}
	}
}

// Remove removes a unit file. One that is not there is a success; something of that name that is no regular file stays:
// ErrNotRegular.
func (d Dir) Remove(name string) error {
	if err := d.remove(name); err != nil {
		return fmt.Errorf("cannot remove %q: %w", d.file(name), cause(err))
	}
	return nil
}

func (d Dir) remove(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	info, err := os.Lstat(d.file(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return ErrNotRegular
	}
	if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(d.Path)
}

func (d Dir) file(name string) string { return filepath.Join(d.Path, name) }

// checkName allows the characters of a unit name, systemd.unit(5), and no hidden files: nothing that leads out of the
// directory.
func checkName(name string) error {
	const special = ":-_.\\@"
	if name == "" || name[0] == '.' || len(name) > 255 {
		return fmt.Errorf("%q is not a unit name", name)
	}
	for _, r := range name {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(special, r)) {
			return fmt.Errorf("%q is not a unit name", name)
		}
	}
	return nil
}

// syncDir writes a directory's entries to disk: until then a crash can undo a rename or a new link.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// cause is what the system said, without the operation and path that package os puts before it: the callers name the
// file that matters, not a temporary one.
func cause(err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &pathErr):
		return pathErr.Err
	case errors.As(err, &linkErr):
		return linkErr.Err
	}
	return err
}
