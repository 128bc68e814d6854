package testhost

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Release is a Debian release by its code name.
type Release string

const (
	Bookworm Release = "bookworm" // Debian 12, systemd 252
	Trixie   Release = "trixie"   // Debian 13, systemd 257
)

// Releases are those that a host can have, oldest first.
var Releases = [...]Release{Bookworm, Trixie}

// ParseRelease returns the release of that name.
func ParseRelease(name string) (Release, error) {
	for _, r := range Releases {
		if name == string(r) {
			return r, nil
		}
	}
	return "", fmt.Errorf("unknown release %q: want %s or %s", name, Bookworm, Trixie)
}

// MirrorEnv names the environment variable with the Debian mirror that images
// are made from, for machines that cannot reach Debian's own.
const MirrorEnv = "TESTHOST_MIRROR"

// imagePackages is what a small server has beyond Debian's "required" set: what
// vllmhost's package depends on, and what an administrator would look with.
var imagePackages = []string{
	"systemd", "systemd-sysv", "dbus", "libnss-systemd",
	"procps", "iproute2", "curl", "ca-certificates", "less",
}

// imageRecipe is the shell script that finishes an image; $1 is its root.
// The image is cached under the hash of all this.
const imageRecipe = `
# Timers that would work, and write, in the middle of a test.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer; do
	ln -sf /dev/null "$1/etc/systemd/system/$unit"
done
# There is no terminal behind the console.
ln -sf /dev/null "$1/etc/systemd/system/console-getty.service"

# Tells the harness that multi-user.target is reached.
cat >"$1/etc/systemd/system/testhost-booted.service" <<'UNIT'
[Unit]
Description=Tell the test harness that the host is up
After=multi-user.target

[Service]
Type=oneshot
Environment=NOTIFY_SOCKET=/run/testhost.sock
ExecStart=/usr/bin/systemd-notify --no-block --ready
UNIT
mkdir -p "$1/etc/systemd/system/multi-user.target.wants"
ln -sf ../testhost-booted.service "$1/etc/systemd/system/multi-user.target.wants/testhost-booted.service"

# The journal of a server survives a reboot.
mkdir -p "$1/var/log/journal"
: >"$1/etc/machine-id"
echo testhost >"$1/etc/hostname"
printf '127.0.0.1 localhost testhost\n::1 localhost\n' >"$1/etc/hosts"
rm -rf "$1"/usr/share/locale/* "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/var/log/*.log "$1"/var/log/apt
rm -f "$1/etc/resolv.conf"
`

// MakeImage makes the release's image, unless the cache has it, and returns
// its folder.
func (l *Lab) MakeImage(ctx context.Context, release Release) (string, error) {
	ctx, leave, err := l.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	dir, held, err := l.image(ctx, release)
	held.release()
	return dir, err
}

// image returns the root directory of the release's image, made if need be,
// and a shared lock that keeps it.
func (l *Lab) image(ctx context.Context, release Release) (string, *lock, error) {
	key := string(release) + "-" + hashStrings(imageRecipe, strings.Join(imagePackages, ","))
	dir := filepath.Join(l.images(), key)
	held, err := l.made(ctx, dir, func(tmp string) error {
		return l.makeImage(ctx, release, tmp)
	})
	if err != nil {
		return "", nil, fmt.Errorf("cannot make the %s image: %w", release, err)
	}
	if err := prune(l.images(), imageAge); err != nil {
		held.release()
		return "", nil, err
	}
	return dir, held, nil
}

// made returns a shared lock on the folder dir. Where it does not exist yet,
// build makes it first, under a temporary name and an exclusive lock, so that
// of several runs at once one builds and nobody sees half a folder.
func (l *Lab) made(ctx context.Context, dir string, build func(tmp string) error) (*lock, error) {
	for {
		held, err := waitLock(ctx, dir+".lock", shared, func() {
			fmt.Fprintf(l.progress, "waiting for another run that makes %s\n", filepath.Base(dir))
		})
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(dir); err == nil {
			now := time.Now()
			return held, os.Chtimes(dir+".lock", now, now) // read by prune
		}
		held.release()
		if err := l.make(ctx, dir, build); err != nil {
			return nil, err
		}
	}
}

func (l *Lab) make(ctx context.Context, dir string, build func(tmp string) error) error {
	held, err := waitLock(ctx, dir+".lock", exclusive, nil)
	if err != nil {
		return err
	}
	defer held.release()
	if _, err := os.Stat(dir); err == nil {
		return nil // another run was faster
	}
	tmp := dir + ".tmp" // under the lock: a leftover is nobody's
	if err := removeTree(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return err
	}
	if err := build(tmp); err != nil {
		if left := removeTree(tmp); left != nil {
			return fmt.Errorf("%w; and %v", err, left)
		}
		return err
	}
	return os.Rename(tmp, dir)
}

// makeImage fills root with a Debian release.
func (l *Lab) makeImage(ctx context.Context, release Release, root string) error {
	fmt.Fprintf(l.progress, "making the %s image (once; about a minute)\n", release)
	recipe := root + ".recipe"
	if err := os.WriteFile(recipe, []byte("#!/bin/sh\nset -eu\n"+imageRecipe), 0o755); err != nil {
		return err
	}
	defer os.Remove(recipe)
	args := []string{
		"mmdebstrap", "--variant=minbase", "--include=" + strings.Join(imagePackages, ","),
		"--aptopt=Acquire::Retries \"5\"", "--customize-hook=" + recipe,
		string(release), root,
	}
	if mirror := os.Getenv(MirrorEnv); mirror != "" {
		args = append(args, mirror)
	}
	t, err := newThread()
	if err != nil {
		return err
	}
	defer t.end()
	var out bytes.Buffer
	cmd := contained(ctx, args)
	cmd.Stdout, cmd.Stderr = &out, &out
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if value, set := os.LookupEnv(name); set {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	if err := t.do(cmd.Start); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("mmdebstrap: %v\n%s", err, lastLines(out.String(), 15))
	}
	return nil
}

// contained returns a command that runs as PID 1 of a process namespace, so
// that no process of its can outlive it, and which dies with the thread that
// starts it.
func contained(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "unshare",
		append([]string{"--pid", "--fork", "--kill-child", "--mount-proc", "--"}, argv...)...)
	cmd.Env = cleanEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	return cmd
}

// cleanEnv is the environment of everything that is run: nothing of the
// developer's own.
func cleanEnv() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C.UTF-8", "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash",
	}
}

func hashStrings(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// lastLines returns the end of a program's output, for an error message.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
