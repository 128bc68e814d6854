package units

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Enabled reports whether a target, such as multi-user.target, starts a unit: whether the unit's link is in TARGET.wants
// of this directory. A dangling link counts, as it does for systemd; one to /dev/null takes the unit away from the
// target, and does not. Something there that is no link is an error.
func (d Dir) Enabled(name, target string) (bool, error) {
	to, err := d.wants(name, target)
	if err != nil {
		return false, fmt.Errorf("cannot see whether %q is enabled: %w", name, err)
	}
	return to != "" && to != os.DevNull, nil
}

// Enable has a target start a unit of this directory, by the link that systemctl enable would make: made by ourselves,
// because on systemd 257 enabling over D-Bus marks every loaded unit as in need of a reload. systemd looks at the link
// at boot and at its next reload. It is a success if the unit is enabled already.
func (d Dir) Enable(name, target string) error {
	if err := d.enable(name, target); err != nil {
		return fmt.Errorf("cannot enable %q: %w", name, err)
	}
	return nil
}

func (d Dir) enable(name, target string) error {
	to, err := d.wants(name, target)
	if err != nil {
		return err
	}
	switch to {
	case "":
	case os.DevNull:
		return fmt.Errorf("%q is a link to %s, made by hand to keep the unit from starting", d.link(name, target), os.DevNull)
	default:
		return nil
	}
	if _, err := os.Lstat(d.file(name)); err != nil {
		return fmt.Errorf("%q: %w", d.file(name), cause(err))
	}
	dir := filepath.Dir(d.link(name, target))
	switch err := os.Mkdir(dir, 0o755); {
	case err == nil:
		if err := syncDir(d.Path); err != nil {
			return fmt.Errorf("%q: %w", d.Path, cause(err))
		}
	case !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%q: %w", dir, cause(err))
	}
	if err := os.Symlink(d.file(name), d.link(name, target)); err != nil {
		return fmt.Errorf("%q: %w", d.link(name, target), cause(err))
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("%q: %w", dir, cause(err))
	}
	return nil
}

// Disable takes a unit's link away from a target. It is a success if the unit is not enabled.
func (d Dir) Disable(name, target string) error {
	to, err := d.wants(name, target)
	if err == nil && to != "" && to != os.DevNull {
		link := d.link(name, target)
		if err = os.Remove(link); err == nil {
			err = syncDir(filepath.Dir(link))
		}
		if err != nil {
			err = fmt.Errorf("%q: %w", link, cause(err))
		}
	}
	if err != nil {
		return fmt.Errorf("cannot disable %q: %w", name, err)
	}
	return nil
}

// wants returns where a unit's link in TARGET.wants leads, or "" if there is none.
func (d Dir) wants(name, target string) (string, error) {
	for _, n := range []string{name, target} {
		if err := checkName(n); err != nil {
			return "", err
		}
	}
	link := d.link(name, target)
	info, err := os.Lstat(link)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("%q: %w", link, cause(err))
	case info.Mode().Type() != fs.ModeSymlink:
		return "", fmt.Errorf("%q is not a link", link)
	}
	to, err := os.Readlink(link)
	if err != nil {
		return "", fmt.Errorf("%q: %w", link, cause(err))
	}
	return to, nil
}

func (d Dir) link(name, target string) string { return filepath.Join(d.Path, target+".wants", name) }
