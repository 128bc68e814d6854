package testhost

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A host's disk is an overlay: the image and what is installed on it below,
// shared and never written, and a folder of its own on top. Where the kernel
// refuses an overlay on the cache's file system, as on that of a Docker
// container, which is an overlay itself, each host has a copy of the whole.

// canOverlay tries whether disks can be overlays here.
func (l *Lab) canOverlay() bool {
	dir := filepath.Join(l.cache, "probe")
	held, err := waitLock(context.Background(), dir+".lock", exclusive, nil)
	if err != nil {
		return false
	}
	defer held.release()
	if removeTree(dir) != nil || os.Mkdir(dir, 0o755) != nil {
		return false
	}
	defer removeTree(dir)
	t, err := newThread()
	if err != nil {
		return false
	}
	defer t.end()
	return t.do(func() error {
		for _, sub := range []string{"lower", "upper", "work", "root"} {
			if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
				return err
			}
		}
		return mountOverlay(dir, []string{filepath.Join(dir, "lower")})
	}) == nil
}

// mountOverlay mounts dir/root on the calling thread.
func mountOverlay(dir string, lower []string) error {
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", strings.Join(lower, ":"), dir, dir)
	return unix.Mount("overlay", filepath.Join(dir, "root"), "overlay", 0, options)
}

// makeRoot gives the host its disk, from the folders below it, the top first.
func (h *Host) makeRoot(lower []string) error {
	for _, dir := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(h.dir, dir), 0o755); err != nil {
			return err
		}
	}
	if h.lab.overlay {
		if err := mountOverlay(h.dir, lower); err != nil {
			return fmt.Errorf("cannot mount an overlay: %v", err)
		}
		return nil
	}
	// The top one is a whole copy already: see changes.
	out, err := exec.Command("cp", "--archive", "--reflink=auto", "--no-target-directory", lower[0], h.root()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot copy an image: %v\n%s", err, lastLines(string(out), 5))
	}
	return nil
}

// root is the host's disk, on its thread.
func (h *Host) root() string { return filepath.Join(h.dir, "root") }

// changes is the folder that, put on top of the image, is the host's disk: the
// top of the overlay, or the whole of a copy.
func (h *Host) changes() string {
	if h.lab.overlay {
		return filepath.Join(h.dir, "upper")
	}
	return h.root()
}
