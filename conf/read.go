package conf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// readRegular reads a regular file of at most limit bytes. Nothing else is opened in a way that could block (a FIFO)
// or have an effect (a device). flags are added to those of open(2).
func readRegular(name string, limit int64, flags ...int) ([]byte, error) {
	flag := os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY
	for _, f := range flags {
		flag |= f
	}
	f, err := os.OpenFile(name, flag, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is %s", fileKind(info.Mode()))
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		size := max(info.Size(), int64(len(data)))
		return nil, fmt.Errorf("it has %d bytes, and the limit is %s", size, Size(limit))
	}
	return data, nil
}

// fileKind names what a file is in words: "a directory".
func fileKind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a regular file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "no regular file"
}

// cause returns what the system said, without the operation and the path.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
