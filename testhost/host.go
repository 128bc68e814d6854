package testhost

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options is how a host is made.
type Options struct {
	Release Release // required
	Cgroups Cgroups
	Payload Payload // what is installed; empty for a bare Debian
	Models  []Model
	GPUs    int // faked ones: see package fakegpu
}

// A Host is a running Debian with a systemd of its own as PID 1, no network
// but its loopback, and a disk that lives until [Host.Close].
//
// Its methods may be called from several goroutines, except that nothing can
// run inside while it reboots.
type Host struct {
	id   string
	lab  *Lab
	opts Options
	// machineID is the content of its /etc/machine-id, by which it is known.
	machineID string

	dir     string  // upper, work, root, console.log
	locks   []*lock // own folder, image, layer
	thread  *thread
	cgroups *cgroupTree

	mu   sync.Mutex // guards boot
	boot *boot

	closeOnce func() error
}

// Boot makes a host and returns when it has reached multi-user.target, about
// a second later. Images and installed packages come from the cache; the
// first boot on a machine makes them, which takes about a minute.
//
// ctx bounds the boot alone. The caller closes the host; [Lab.Close] does too.
func (l *Lab) Boot(ctx context.Context, opts Options) (*Host, error) {
	ctx, leave, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	h, err := l.create(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := h.start(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// create makes the host's disk and cgroups; nothing runs yet.
func (l *Lab) create(ctx context.Context, opts Options) (*Host, error) {
	layer, layerLocks, err := l.lowerDirs(ctx, opts)
	if err != nil {
		return nil, err
	}
	h := &Host{lab: l, opts: opts, locks: layerLocks}
	h.closeOnce = sync.OnceValue(h.close)
	if err := h.claim(); err != nil {
		h.unlock()
		return nil, err
	}
	l.add(h)
	if err := h.makeDisk(layer); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make a host: %w", err), h.Close())
	}
	return h, nil
}

// lowerDirs returns the read-only folders of the host's disk, the top first.
func (l *Lab) lowerDirs(ctx context.Context, opts Options) ([]string, []*lock, error) {
	image, held, err := l.image(ctx, opts.Release)
	if err != nil {
		return nil, nil, err
	}
	if opts.Payload.empty() {
		return []string{image}, []*lock{held}, nil
	}
	layer, layerHeld, err := l.layer(ctx, opts)
	if err != nil {
		held.release()
		return nil, nil, err
	}
	return []string{layer, image}, []*lock{layerHeld, held}, nil
}

func (l *Lab) hostDir(id string) string  { return filepath.Join(l.running(), id) }
func (l *Lab) lockPath(id string) string { return l.hostDir(id) + ".lock" }

// claim takes a folder and the lock that says this process owns it.
func (h *Host) claim() error {
	for {
		random := make([]byte, 4)
		rand.Read(random)
		id := fmt.Sprintf("%s-%s", h.opts.Release, hex.EncodeToString(random))
		held, err := tryLock(h.lab.lockPath(id), exclusive)
		if err != nil {
			return err
		}
		if held == nil {
			continue
		}
		// A reaper may have locked and unlinked the file before us.
		if _, err := os.Stat(h.lab.lockPath(id)); err != nil {
			held.release()
			continue
		}
		h.id, h.dir, h.locks = id, h.lab.hostDir(id), append(h.locks, held)
		return os.Mkdir(h.dir, 0o755)
	}
}

// makeDisk starts the host's thread, mounts its disk there and fills in what
// this host alone has.
func (h *Host) makeDisk(lower []string) error {
	var err error
	if h.thread, err = newThread(); err != nil {
		return err
	}
	return h.thread.do(func() error {
		mounts, err := mountCgroups(h.opts.Cgroups)
		if err != nil {
			return err
		}
		tree, err := makeCgroup(mounts, h.id)
		if err != nil {
			return err
		}
		h.cgroups = tree
		if err := tree.note(filepath.Join(h.dir, cgroupNote), h.opts.Cgroups); err != nil {
			return err
		}
		// nspawn keeps locks and folders in /run/systemd; they go with us.
		if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return err
		}
		if err := h.makeRoot(lower); err != nil {
			return err
		}
		return h.fill()
	})
}

// fill writes what this host alone has on its disk.
func (h *Host) fill() error {
	random := make([]byte, 16)
	rand.Read(random)
	h.machineID = hex.EncodeToString(random) + "\n"
	files := map[string]string{
		"etc/machine-id": h.machineID,
		"etc/hostname":   "gpu-host\n",
		"etc/hosts":      "127.0.0.1 localhost gpu-host\n::1 localhost\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(h.root(), name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, model := range h.opts.Models {
		if err := model.install(h.root()); err != nil {
			return err
		}
	}
	return h.installGPUs()
}

// Close powers the host off at once and removes all of it. Calling it again
// waits for the first call and returns the same.
func (h *Host) Close() error { return h.closeOnce() }

func (h *Host) close() error {
	failed := h.kill()
	if h.thread != nil {
		if h.cgroups != nil {
			failed = errors.Join(failed, h.thread.do(h.cgroups.remove))
		}
		h.thread.end()
	}
	if failed == nil {
		failed = removeTree(h.dir)
	}
	if failed == nil {
		failed = os.Remove(h.lab.lockPath(h.id))
	}
	h.unlock()
	h.lab.remove(h)
	if failed != nil {
		return fmt.Errorf("cannot remove host %s: %w", h.id, failed)
	}
	return nil
}

func (h *Host) unlock() {
	for _, held := range h.locks {
		held.release()
	}
	h.locks = nil
}

// Release returns the Debian release of the host.
func (h *Host) Release() Release { return h.opts.Release }

// Cgroups returns the layout of the host's cgroups.
func (h *Host) Cgroups() Cgroups { return h.opts.Cgroups }

// String names the host in messages: its id, release and cgroup layout.
func (h *Host) String() string {
	return fmt.Sprintf("host %s (%s cgroups)", h.id, h.opts.Cgroups)
}

// bootLimit bounds a boot that hangs; a good one takes about a second.
const bootLimit = 90 * time.Second
