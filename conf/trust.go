package conf

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// files is where files with secrets are looked at: root stands for "/", and owner is the user who may own them.
type files struct {
	root  string
	owner uint32
}

// Permission bits by which others than the owner could write or read.
const (
	othersWrite fs.FileMode = 0o022
	othersAny   fs.FileMode = 0o077
)

// secretFault says what keeps a file from holding a secret: it is missing, or somebody but root can read or replace
// it. Every directory on the way and every symbolic link counts, for who can change one of them can replace the file.
// On success it returns where the file really is.
func (s files) secretFault(name string) (real string, f *fault) {
	const maxLinks = 40 // as in the kernel
	todo := elements(name)
	at := "/"
	if f := s.directoryFault(at); f != nil {
		return "", f
	}
	for links := 0; len(todo) > 0; {
		next := path.Join(at, todo[0]) // ".." too: at holds no links
		todo = todo[1:]
		info, err := os.Lstat(s.in(next))
		switch {
		case err != nil:
			return "", unseen(name, next, err)
		case info.Mode()&os.ModeSymlink != 0:
			if f := s.ownerFault(next, info); f != nil {
				return "", f
			}
			target, err := os.Readlink(s.in(next))
			if links++; err != nil || links > maxLinks {
				return "", faultf("leads through too many symbolic links")
			}
			if path.IsAbs(target) {
				at = "/"
			}
			todo = append(elements(target), todo...)
		case len(todo) > 0:
			if f := s.directoryFault(next); f != nil {
				return "", f
			}
			at = next
		default:
			return next, s.fileFault(next, info)
		}
	}
	return "", faultf("is a directory")
}

func (s files) in(name string) string { return path.Join(s.root, name) }

func elements(name string) (list []string) {
	for _, e := range strings.Split(name, "/") {
		if e != "" && e != "." {
			list = append(list, e)
		}
	}
	return list
}

// unread says why a file that secretFault found good could not be read.
func unread(err error) *fault {
	if errors.Is(err, os.ErrPermission) {
		f := faultf("was not checked: only root can read it").hinted("run as root")
		f.warning = true
		return f
	}
	return faultf("cannot be read: %v", cause(err))
}

// unseen says why a part of the way to a file cannot be looked at.
func unseen(name, part string, err error) *fault {
	switch {
	case errors.Is(err, os.ErrNotExist) && part == name:
		return faultf("does not exist: %s", escape(name)).hinted("make it: install -m 600 /dev/null %s", escape(name))
	case errors.Is(err, os.ErrNotExist):
		return faultf("does not exist: there is no %s", escape(part))
	case errors.Is(err, os.ErrPermission):
		f := faultf("was not checked: only root can see it").hinted("run as root")
		f.warning = true
		return f
	}
	return faultf("cannot be seen: %s: %v", escape(part), cause(err))
}

func (s files) directoryFault(dir string) *fault {
	info, err := os.Lstat(s.in(dir))
	if err != nil {
		return unseen("", dir, err)
	}
	if !info.IsDir() {
		return faultf("does not exist: %s is %s", escape(dir), fileKind(info.Mode()))
	}
	if f := s.ownerFault(dir, info); f != nil {
		return f
	}
	if info.Mode()&othersWrite != 0 {
		return faultf("can be replaced by others than root, who may write to %s (mode %04o)", escape(dir), info.Mode().Perm()).
			hinted("chmod go-w %s", escape(dir))
	}
	return nil
}

func (s files) fileFault(name string, info fs.FileInfo) *fault {
	mode := info.Mode()
	switch {
	case !mode.IsRegular():
		return faultf("is %s, not a regular file", fileKind(mode))
	case s.ownerFault(name, info) != nil:
		return s.ownerFault(name, info)
	case mode&othersWrite != 0:
		return faultf("can be changed by others than root (mode %04o)", mode.Perm()).hinted("chmod 600 %s", escape(name))
	case mode&othersAny != 0:
		return faultf("can be read by others than root (mode %04o)", mode.Perm()).hinted("chmod 600 %s", escape(name))
	}
	return nil
}

func (s files) ownerFault(name string, info fs.FileInfo) *fault {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid == s.owner {
		return nil
	}
	return faultf("can be replaced by others than root: %s belongs to user %d", escape(name), stat.Uid).
		hinted("chown root: %s", escape(name))
}
