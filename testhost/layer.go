package testhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Payload is what is installed on a host before it boots: paths of files on
// this machine, each may be empty.
type Payload struct {
	Deb    string // installed as a user would, with apt-get, on a running host
	Engine string // becomes /opt/vllm/bin/vllm
	SMI    string // becomes /usr/bin/nvidia-smi where GPUs are faked
}

func (p Payload) empty() bool { return p.Deb == "" && p.Engine == "" }

// FindPayload returns what `make payload` has left below the module's root: the
// newest package in dist, the simulated engine and the faked nvidia-smi.
func FindPayload(module string) (Payload, error) {
	p := Payload{
		Engine: filepath.Join(module, ".cache/bin/vllmsim"),
		SMI:    filepath.Join(module, ".cache/bin/nvidia-smi"),
	}
	debs, err := filepath.Glob(filepath.Join(module, "dist/vllmhost_*_amd64.deb"))
	if err != nil {
		return Payload{}, err
	}
	var newest time.Time
	for _, deb := range debs {
		info, err := os.Stat(deb)
		if err == nil && info.ModTime().After(newest) {
			p.Deb, newest = deb, info.ModTime()
		}
	}
	for _, name := range []string{p.Deb, p.Engine, p.SMI} {
		if _, err := os.Stat(name); err != nil {
			return Payload{}, fmt.Errorf("the package and the simulated engine are not built yet; run: make payload")
		}
	}
	return p, nil
}

// EnginePath is where a host has its engine.
const EnginePath = "/opt/vllm/bin/vllm"

// layer returns a folder with what installing the payload changed on the
// release's image. It is cached under the hash of the payload, so that only
// the first host after a change pays for the installation (four seconds).
func (l *Lab) layer(ctx context.Context, opts Options) (string, *lock, error) {
	key, err := hashFiles(opts.Payload.Deb, opts.Payload.Engine)
	if err != nil {
		return "", nil, err
	}
	key = string(opts.Release) + "-" + hashStrings(key, imageRecipe, strings.Join(imagePackages, ","), fmt.Sprint(l.overlay))
	dir := filepath.Join(l.layers(), key)
	held, err := l.made(ctx, dir, func(tmp string) error {
		return l.makeLayer(ctx, opts, tmp)
	})
	if err != nil {
		return "", nil, fmt.Errorf("cannot install on %s: %w", opts.Release, err)
	}
	if err := prune(l.layers(), layerAge); err != nil {
		held.release()
		return "", nil, err
	}
	return dir, held, nil
}

// makeLayer boots a bare host, installs the payload there and keeps what that
// changed on its disk.
func (l *Lab) makeLayer(ctx context.Context, opts Options, tmp string) error {
	h, err := l.Boot(ctx, Options{Release: opts.Release})
	if err != nil {
		return err
	}
	defer h.Close()
	if opts.Payload.Engine != "" {
		if err := h.copyIn(ctx, opts.Payload.Engine, EnginePath, 0o755); err != nil {
			return err
		}
	}
	if opts.Payload.Deb != "" {
		if err := h.InstallDeb(ctx, opts.Payload.Deb); err != nil {
			return err
		}
	}
	if err := h.shutdown(ctx, "poweroff"); err != nil {
		return err
	}
	// What belongs to this host alone.
	journals, err := filepath.Glob(filepath.Join(h.changes(), "var/log/journal/*"))
	if err != nil {
		return err
	}
	for _, path := range journals {
		if err := removeTree(path); err != nil {
			return err
		}
	}
	if err := os.Remove(tmp); err != nil {
		return err
	}
	return os.Rename(h.changes(), tmp)
}

// InstallDeb installs a package file of this machine inside, with apt-get, as
// `apt install ./x.deb` does. What it depends on must be in the image: a host
// has no network.
func (h *Host) InstallDeb(ctx context.Context, deb string) error {
	inside := "/run/" + filepath.Base(deb) // in memory
	if err := h.copyIn(ctx, deb, inside, 0o644); err != nil {
		return err
	}
	_, err := h.Check(ctx, "env", "DEBIAN_FRONTEND=noninteractive",
		"apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "--allow-downgrades", "--reinstall", inside)
	return err
}

// copyIn copies a file of this machine into the host.
func (h *Host) copyIn(ctx context.Context, from, to string, mode uint32) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return h.WriteFile(ctx, to, data, mode)
}

// How long a layer and an image are kept after their last use.
const (
	layerAge = 24 * time.Hour
	imageAge = 14 * 24 * time.Hour
)

// prune removes the folders of dir that nobody has used for so long: those of
// packages and recipes of the past.
func prune(dir string, age time.Duration) error {
	locks, err := filepath.Glob(filepath.Join(dir, "*.lock"))
	if err != nil {
		return err
	}
	for _, path := range locks {
		info, err := os.Stat(path)
		if err != nil || time.Since(info.ModTime()) < age {
			continue
		}
		held, err := tryLock(path, exclusive)
		if held == nil {
			if err != nil {
				return err
			}
			continue // in use
		}
		err = removeTree(strings.TrimSuffix(path, ".lock"))
		held.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// hashFiles hashes the contents of files; an empty name counts as no file.
func hashFiles(names ...string) (string, error) {
	h := sha256.New()
	for _, name := range names {
		if name == "" {
			fmt.Fprint(h, "none\n")
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		n, err := io.Copy(h, f)
		f.Close()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "\n%d\n", n)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
