package units

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// keptSuffix is that of a unit file that was put aside. systemd reads no file of such a name.
const keptSuffix = ".before"

// Keep puts a unit file aside, as a second name of the same file: so that PutBack needs no room on the disk. What was
// kept before is forgotten. It is a success where there is no such unit.
func (d Dir) Keep(name string) error {
	if err := d.keep(name); err != nil {
		return fmt.Errorf("cannot keep %q: %w", d.file(name), cause(err))
	}
	return nil
}

func (d Dir) keep(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := os.Remove(d.kept(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	if err := os.Link(d.file(name), d.kept(name)); err != nil {
		return err
	}
	return syncDir(d.Path)
}

// PutBack makes the file that was kept the unit file again, as of now: systemd takes a unit for outdated when its file
// is later than what it read. It is a success where nothing was kept.
func (d Dir) PutBack(name string) error {
	if err := d.putBack(name); err != nil {
		return fmt.Errorf("cannot put back %q: %w", d.file(name), cause(err))
	}
	return nil
}

func (d Dir) putBack(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	info, err := os.Lstat(d.kept(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return ErrNotRegular
	}
	modified, err := d.later(name, time.Now())
	if err != nil {
		return err
	}
	if err := os.Chtimes(d.kept(name), modified, modified); err != nil {
		return err
	}
	if err := os.Rename(d.kept(name), d.file(name)); err != nil {
		return err
	}
	return syncDir(d.Path)
}

// Forget drops what was kept. It is a success where nothing was.
func (d Dir) Forget(name string) error {
	err := checkName(name)
	if err == nil {
		err = os.Remove(d.kept(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove %q: %w", d.kept(name), cause(err))
	}
	return nil
}

func (d Dir) kept(name string) string { return d.file(name) + keptSuffix }
