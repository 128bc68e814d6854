package units

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// NewerThan reports whether a unit file was written after a time. One that is not there was not.
func (d Dir) NewerThan(name string, t time.Time) (bool, error) {
	info, err := os.Lstat(d.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot look at %q: %w", d.file(name), cause(err))
	}
	return info.ModTime().After(t), nil
}
