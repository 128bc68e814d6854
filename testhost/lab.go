package testhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// CacheEnv names the environment variable that moves the cache of images.
const CacheEnv = "TESTHOST_CACHE"

// DefaultCache is where images and running hosts live, unless [CacheEnv] says
// otherwise: about 250 MB a release.
const DefaultCache = "/var/cache/vllmhost-testhost"

// A Lab owns the hosts that one process boots, and shares the cache of images
// with all others on the machine.
type Lab struct {
	cache    string
	progress io.Writer
	overlay  bool // disks are overlays, not copies

	ctx   context.Context // ends with the lab
	end   context.CancelCauseFunc
	busy  sync.WaitGroup // boots under way
	mu    sync.Mutex     // guards hosts, and busy against Close
	hosts map[*Host]struct{}
}

var errClosed = errors.New("the lab is closed")

// Open prepares the cache and removes what earlier runs left in it (they were
// killed: see [Lab.Close]). progress gets a line for whatever takes long; nil
// discards it. The error of a machine that cannot boot hosts says what to
// type: [CheckMachine].
func Open(progress io.Writer) (*Lab, error) {
	if err := CheckMachine(); err != nil {
		return nil, err
	}
	if progress == nil {
		progress = io.Discard
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	l := &Lab{cache: cache, progress: progress, hosts: map[*Host]struct{}{}}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	for _, dir := range []string{l.images(), l.layers(), l.running()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("cannot make the cache: %v", err)
		}
	}
	if err := l.reap(); err != nil {
		return nil, err
	}
	l.overlay = l.canOverlay()
	return l, nil
}

func cacheDir() (string, error) {
	dir := os.Getenv(CacheEnv)
	if dir == "" {
		return DefaultCache, nil
	}
	// Both separate overlayfs options.
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, ",:\\") {
		return "", fmt.Errorf("%s=%q: want an absolute path without commas, colons and backslashes", CacheEnv, dir)
	}
	return filepath.Clean(dir), nil
}

func (l *Lab) images() string  { return filepath.Join(l.cache, "image") }
func (l *Lab) layers() string  { return filepath.Join(l.cache, "layer") }
func (l *Lab) running() string { return filepath.Join(l.cache, "host") }

// Close calls off what boots, powers every host off at once and removes all
// they leave: processes, cgroups, mounts and folders. A process that is killed
// before it gets here leaves no process and no mount behind; its folders and
// cgroups go with the next [Open], or `testhost clean`.
func (l *Lab) Close() error {
	l.mu.Lock()
	l.end(errClosed)
	l.mu.Unlock()
	l.busy.Wait()

	l.mu.Lock()
	hosts := slices.Collect(maps.Keys(l.hosts))
	l.mu.Unlock()
	var failed error
	for _, h := range hosts {
		failed = errors.Join(failed, h.Close())
	}
	return failed
}

// enter begins what Close has to call off and wait for: ctx ends with the lab,
// and leave says that it is done.
func (l *Lab) enter(ctx context.Context) (_ context.Context, leave func(), _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil, nil, errClosed
	}
	l.busy.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		l.busy.Done()
	}, nil
}

// CloseOnSignal makes SIGINT, SIGTERM and SIGHUP close the lab and end the
// process with 128 plus the signal's number, as a shell would say it.
func (l *Lab) CloseOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		s := (<-signals).(syscall.Signal)
		if err := l.Close(); err != nil {
			fmt.Fprintln(l.progress, err)
		}
		os.Exit(128 + int(s))
	}()
}

func (l *Lab) add(h *Host) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts[h] = struct{}{}
}

func (l *Lab) remove(h *Host) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.hosts, h)
}

// reap removes the folders and cgroups of hosts whose owner is dead: nobody
// holds their lock.
func (l *Lab) reap() error {
	entries, err := os.ReadDir(l.running())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		id, isLock := strings.CutSuffix(entry.Name(), ".lock")
		if !isLock {
			continue
		}
		if err := l.reapHost(id); err != nil {
			return fmt.Errorf("cannot remove what an earlier run left: %w", err)
		}
	}
	return nil
}

func (l *Lab) reapHost(id string) error {
	held, err := tryLock(l.lockPath(id), exclusive)
	if held == nil {
		return err // nil where its owner lives
	}
	defer held.release()
	if err := l.removeLeftCgroups(id); err != nil {
		return err
	}
	if err := removeTree(l.hostDir(id)); err != nil {
		return err
	}
	// Ids are never used twice, so nobody waits for this lock's name.
	return os.Remove(l.lockPath(id))
}

// removeLeftCgroups removes the cgroups that the host noted down when it began.
func (l *Lab) removeLeftCgroups(id string) error {
	layout, tree, err := readCgroupNote(filepath.Join(l.hostDir(id), cgroupNote))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t, err := newThread()
	if err != nil {
		return err
	}
	defer t.end()
	return t.do(func() error {
		if _, err := mountCgroups(layout); err != nil {
			return err
		}
		return tree.remove()
	})
}

// Clean removes every image, layer and leftover of the cache, and the cache
// itself. It refuses while another process uses one.
func Clean() error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	if _, err := os.Stat(cache); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l, err := Open(nil)
	if err != nil {
		return err
	}
	for _, dir := range []string{l.images(), l.layers(), l.running()} {
		locks, err := filepath.Glob(filepath.Join(dir, "*.lock"))
		if err != nil {
			return err
		}
		for _, path := range locks {
			held, err := tryLock(path, exclusive)
			if err != nil {
				return err
			}
			if held == nil {
				return fmt.Errorf("cannot remove %q: another run uses %s", cache, strings.TrimSuffix(path, ".lock"))
			}
			defer held.release()
		}
	}
	return removeTree(cache)
}
