package models

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// directory is a model directory, opened once. Everything in it is found through that one descriptor.
//
// Links are followed only as long as they stay inside (os.Root sees to that). In the Hub's shared cache a model's directory
// is models--ORG--NAME/snapshots/COMMIT, all of whose files are links to ../../blobs/HASH: there, inside means
// models--ORG--NAME. Links in the path of the directory itself are the administrator's and may lead anywhere.
type directory struct {
	root *os.Root
	in   string // the directory within root, "." or "snapshots/COMMIT"
}

func openDirectory(dir string) (*directory, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	d := &directory{in: "."}
	if parent, commit := filepath.Split(dir); filepath.Base(parent) == "snapshots" {
		if repo := filepath.Dir(filepath.Clean(parent)); strings.HasPrefix(filepath.Base(repo), "models--") {
			dir, d.in = repo, path.Join("snapshots", commit)
		}
	}
	d.root, err = os.OpenRoot(dir)
	return d, err
}

func (d *directory) close() { d.root.Close() }

// errLeadsOut is for links that lead out of the directory.
var errLeadsOut = errors.New("is a link that leads out of the model directory")

// open opens a regular file for reading. The error's text is a predicate of the file, for a Problem.
func (d *directory) open(name string) (*os.File, int64, error) {
	name = path.Join(d.in, name)
	// The kind is asked for before the file is opened: to open a device can already have an effect. It is asked for again
	// afterwards, because the name may have changed hands. O_NONBLOCK keeps a fifo from blocking us in between.
	info, err := d.root.Stat(name)
	if err != nil {
		return nil, 0, d.openError(name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, 0, notRegular(info.Mode())
	}
	file, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, d.openError(name, err)
	}
	info, err = file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(info.Mode())
	}
	if err != nil {
		file.Close()
		return nil, 0, d.openError(name, err)
	}
	return file, info.Size(), nil
}

// openError says what became of a file that cannot be opened. It wraps fs.ErrNotExist where there is none.
func (d *directory) openError(name string, err error) error {
	var inner *fs.PathError
	if !errors.As(err, &inner) {
		return err // one of ours
	}
	link, lstatErr := d.root.Lstat(name)
	isLink := lstatErr == nil && link.Mode()&fs.ModeSymlink != 0
	var errno syscall.Errno
	switch {
	case isLink && errors.Is(err, fs.ErrNotExist):
		return absentError("is a link to a file that is missing")
	case isLink && !errors.As(err, &errno): // os.Root's own refusal
		return errLeadsOut
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return absentError("is missing")
	case errors.Is(err, fs.ErrPermission):
		return absentError(fmt.Sprintf("cannot be read by uid %d: %v", os.Geteuid(), inner.Err))
	default:
		return fmt.Errorf("cannot be read: %v", inner.Err)
	}
}

// absentError is for files that are as good as not there, in contrast to those that are there and wrong.
type absentError string

func (e absentError) Error() string { return string(e) }

func notRegular(mode fs.FileMode) error {
	kinds := map[fs.FileMode]string{
		fs.ModeDir: "directory", fs.ModeNamedPipe: "fifo", fs.ModeSocket: "socket",
		fs.ModeDevice: "device", fs.ModeDevice | fs.ModeCharDevice: "device",
	}
	if kind, ok := kinds[mode.Type()]; ok {
		return fmt.Errorf("is a %s, not a file", kind)
	}
	return errors.New("is not a regular file")
}

// maxWeightFiles bounds what a directory can make us look at. The largest models have a few hundred.
const maxWeightFiles = 10_000

// listing is what a directory holds at its top level, where alone vLLM looks for weights.
type listing struct {
	empty       bool
	safetensors []string
	gguf        []string
	pytorch     []string
}

func (d *directory) list() (listing, error) {
	found := listing{empty: true}
	dir, err := d.root.Open(d.in)
	if err != nil {
		return found, err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			found.empty = false
			switch path.Ext(name) {
			case ".safetensors":
				found.safetensors = append(found.safetensors, name)
			case ".gguf":
				found.gguf = append(found.gguf, name)
			case ".bin", ".pt", ".pth":
				found.pytorch = append(found.pytorch, name)
			}
		}
		if len(found.safetensors)+len(found.gguf)+len(found.pytorch) > maxWeightFiles {
			return found, fmt.Errorf("it holds more than %d weight files", maxWeightFiles)
		}
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return found, err
		}
	}
}
