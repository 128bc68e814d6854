// Package shm looks after the host's /dev/shm: which of the files in it are an engine's leftovers, and removes those.
//
// A file is stale only if everything proves it: its name is of a family that engines make, it belongs to the user of an
// instance, it is a regular file with one name, no process has it open or mapped, the process that made it is gone where
// the name tells which, and no instance of that user that shares the host's /dev/shm runs. All else stays, with the
// reason why. Files of others' that look the same are in use by them.
package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"vllmhost/hostctl/proc"
)

// Dir is a directory of shared memory. The zero value is the host's.
type Dir struct {
	Path      string  // "" is /dev/shm
	Processes proc.FS // who may use its files
}

func (d Dir) path() string {
	if d.Path == "" {
		return "/dev/shm"
	}
	return d.Path
}

// Owner is a user that instances run as.
type Owner struct {
	User string
	Unit string // one that runs as this user
	Busy string // one that does at the moment, with the host's /dev/shm; "" when none does
}

// File is an entry whose name is of an engine's family.
type File struct {
	Name   string // foreign text
	Bytes  int64  // of memory that it really takes
	UID    int
	Family string // who makes such files
	Stale  bool
	Why    string // it stays or may go

	id proc.FileID
}

// maxEntries bounds how many entries of the directory are looked at.
const maxEntries = 1 << 20

// Scan returns the entries that engines may have made, by name. Owners are the users of instances, by uid.
func (d Dir) Scan(owners map[int]Owner) ([]File, error) {
	dir, err := d.open()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := readNames(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list %q: %v", d.path(), err)
	}
	var files []File
	for _, name := range names {
		maker, pid, ok := familyOf(name)
		if !ok {
			continue
		}
		var stat unix.Stat_t
		if err := unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue // removed meanwhile
		}
		f := File{Name: name, Bytes: stat.Blocks * 512, UID: int(stat.Uid), Family: maker, id: proc.FileID{Dev: stat.Dev, Ino: stat.Ino}}
		f.Why = keep(&stat, pid, owners)
		f.Stale = f.Why == ""
		files = append(files, f)
	}
	if err := d.unused(files); err != nil {
		return nil, err
	}
	for i, f := range files {
		if f.Stale {
			o := owners[f.UID]
			files[i].Why = fmt.Sprintf("%s's, left by %s, nobody has it open", o.User, o.Unit)
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

// keep says why an entry stays, as far as it shows itself, or returns "".
func keep(stat *unix.Stat_t, pid int, owners map[int]Owner) string {
	owner, ours := owners[int(stat.Uid)]
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFDIR:
		return "a directory"
	default:
		return "no regular file"
	}
	switch {
	case !ours:
		return fmt.Sprintf("of user %s, which no instance runs as", proc.UserName(int(stat.Uid)))
	case stat.Nlink != 1:
		return fmt.Sprintf("it has %d names", stat.Nlink)
	case pid != 0 && alive(pid):
		return fmt.Sprintf("process %d, which its name names, lives", pid)
	case owner.Busy != "":
		return fmt.Sprintf("%s's, and %s runs", owner.User, owner.Busy)
	}
	return ""
}

// alive reports whether there is a process with this pid, be it another one by now: then the file stays, for once.
func alive(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}

// unused takes the mark off the files that a process has open or mapped.
func (d Dir) unused(files []File) error {
	names := map[proc.FileID]string{}
	for _, f := range files {
		if f.Stale {
			names[f.id] = f.Name
		}
	}
	users, hidden, err := d.Processes.FileUsers(names)
	if err != nil {
		return err
	}
	for i, f := range files {
		switch {
		case !f.Stale:
		case len(users[f.id]) > 0:
			files[i].Stale, files[i].Why = false, "in use by "+nameOf(users[f.id][0])
		case hidden > 0:
			files[i].Stale, files[i].Why = false, fmt.Sprintf("%d processes may have it open: only root can see", hidden)
		}
	}
	return nil
}

func nameOf(pid int) string {
	p, err := proc.Read(pid)
	if err != nil {
		return fmt.Sprintf("pid %d", pid)
	}
	return p.String()
}

// Remove removes those of the files that are stale, and returns which. Each is looked at again right before: one that is
// another file by now, or that somebody has opened, stays. A name cannot become another user's file in between: only its
// owner and root may rename in a sticky directory.
func (d Dir) Remove(files []File) (removed []File, err error) {
	files = slices.DeleteFunc(slices.Clone(files), func(f File) bool { return !f.Stale })
	if err := d.unused(files); err != nil {
		return nil, err
	}
	dir, err := d.open()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var failures []error
	for _, f := range files {
		if !f.Stale {
			continue
		}
		var stat unix.Stat_t
		err := unix.Fstatat(int(dir.Fd()), f.Name, &stat, unix.AT_SYMLINK_NOFOLLOW)
		same := err == nil && f.id == proc.FileID{Dev: stat.Dev, Ino: stat.Ino} && int(stat.Uid) == f.UID &&
			stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Nlink == 1
		if !same {
			continue
		}
		if err := unix.Unlinkat(int(dir.Fd()), f.Name, 0); err != nil {
			failures = append(failures, fmt.Errorf("cannot remove %q: %v", filepath.Join(d.path(), f.Name), err))
			continue
		}
		removed = append(removed, f)
	}
	return removed, errors.Join(failures...)
}

// open opens the directory itself, never what a link there leads to.
func (d Dir) open() (*os.File, error) {
	dir, err := os.OpenFile(d.path(), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %q: %v", d.path(), errors.Unwrap(err))
	}
	return dir, nil
}

func readNames(dir *os.File) ([]string, error) {
	names, err := dir.Readdirnames(maxEntries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
