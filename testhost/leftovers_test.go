//go:build e2e

package testhost

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childVariable makes the test binary boot a host and wait for its end.
const childVariable = "TESTHOST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := waitForSignal(); err != nil {
			fmt.Println(err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func waitForSignal() error {
	l, err := Open(os.Stderr)
	if err != nil {
		return err
	}
	l.CloseOnSignal()
	layout := Unified
	if os.Getenv(childVariable) == Hybrid.String() {
		layout = Hybrid
	}
	h, err := l.Boot(l.ctx, Options{Release: Bookworm, Cgroups: layout})
	if err != nil {
		return err
	}
	fmt.Printf("up %s %d\n", h.id, h.boot.leader)
	time.Sleep(time.Minute) // longer than the test
	return nil
}

// Whatever ends a process that has booted a host, nothing of the host runs on
// and nothing of it stays mounted. SIGKILL leaves files, which the next Open
// removes.
func TestNothingIsLeft(t *testing.T) {
	for _, signal := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGKILL} {
		for _, layout := range []Cgroups{Unified, Hybrid} {
			t.Run(unix.SignalName(signal)+"/"+layout.String(), func(t *testing.T) {
				id, leader, child := bootInChild(t, layout, (*exec.Cmd).Start)
				if err := child.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				err := child.Wait()
				eventually(t, "the host's PID 1 is gone", func() bool { return unix.Kill(leader, 0) == unix.ESRCH })
				if signal == unix.SIGKILL {
					l, err := Open(t.Output())
					if err != nil {
						t.Fatal(err)
					}
					defer l.Close()
				} else if code := child.ProcessState.ExitCode(); code != 128+int(signal) {
					t.Errorf("exit status %d, %v; want %d", code, err, 128+int(signal))
				}
				checkNothingOf(t, id)
			})
		}
	}
}

// bootInChild returns when the child, started by start, has a host.
func bootInChild(t *testing.T, layout Cgroups, start func(*exec.Cmd) error) (id string, leader int, child *exec.Cmd) {
	t.Helper()
	child = exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), childVariable+"="+layout.String())
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := start(child); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, scan := fmt.Sscanf(line, "up %s %d", &id, &leader); scan != nil {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return id, leader, child
}

// In a chroot "/" is no mount point, and whoever enters a namespace lands
// outside of the chroot unless care is taken. There, too, a command meant for
// the host runs in the host: the child's Boot proves that or fails.
func TestInAChroot(t *testing.T) {
	// Not t.TempDir, which is deleted without a look at what is mounted there.
	dir, err := os.MkdirTemp("", "chroot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeTree(dir); err != nil {
			t.Error(err)
		}
	})
	thread, err := newThread()
	if err != nil {
		t.Fatal(err)
	}
	defer thread.end()
	id, _, child := bootInChild(t, Unified, func(child *exec.Cmd) error {
		return thread.do(func() error {
			if err := assembleRoot(dir); err != nil {
				return err
			}
			child.SysProcAttr = &syscall.SysProcAttr{Chroot: dir}
			child.Dir = "/"
			return child.Start()
		})
	})
	if err := child.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	child.Wait()
	checkNothingOf(t, id)
}

// assembleRoot makes dir look like "/" to a chroot: a plain folder, in which
// each entry of the real root is bound.
func assembleRoot(dir string) error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		from, to := "/"+entry.Name(), filepath.Join(dir, entry.Name())
		if target, err := os.Readlink(from); err == nil {
			if err := os.Symlink(target, to); err != nil {
				return err
			}
			continue
		}
		if !entry.IsDir() {
			continue
		}
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("%s: %v", from, err)
		}
	}
	return nil
}

func checkNothingOf(t *testing.T, id string) {
	t.Helper()
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "host", id+"*")); len(left) > 0 {
		t.Errorf("left in the cache: %q", left)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), id) {
		t.Errorf("left mounted:\n%s", mounts)
	}
	thread, err := newThread()
	if err != nil {
		t.Fatal(err)
	}
	defer thread.end()
	if err := thread.do(func() error { _, err := mountCgroups(Hybrid); return err }); err != nil {
		t.Fatal(err)
	}
	var cgroups []string
	thread.do(func() error {
		return filepath.WalkDir(cgroupRoot, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == cgroupPrefix+id {
				cgroups = append(cgroups, path)
			}
			return nil
		})
	})
	if len(cgroups) > 0 {
		t.Errorf("left cgroups: %q", cgroups)
	}
	argvs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range argvs {
		if text, _ := os.ReadFile(path); strings.Contains(string(text), id) {
			t.Errorf("left running: %q", text)
		}
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// A lab that closes while a host boots calls the boot off.
func TestCloseWhileBooting(t *testing.T) {
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond} {
		l, err := Open(t.Output())
		if err != nil {
			t.Fatal(err)
		}
		hosts := make(chan *Host)
		go func() {
			h, _ := l.Boot(t.Context(), Options{Release: Trixie})
			hosts <- h
		}()
		time.Sleep(after)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		h := <-hosts
		if len(l.hosts) > 0 {
			t.Errorf("closed after %v: %d hosts are left", after, len(l.hosts))
		}
		if h != nil {
			if _, err := h.Run(t.Context(), "true"); err == nil {
				t.Errorf("closed after %v: the host still answers", after)
			}
			checkNothingOf(t, h.id)
		}
	}
}

// Where disks cannot be overlays they are copies, and keep what is written.
func TestCopiedDisk(t *testing.T) {
	l, err := Open(t.Output())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.overlay = false
	h, err := l.Boot(t.Context(), Options{Release: Bookworm})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.WriteFile(t.Context(), "/etc/motd", []byte("Welcome\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := h.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, err := h.ReadFile(t.Context(), "/etc/motd"); string(text) != "Welcome\n" {
		t.Errorf("read %q, %v", text, err)
	}
	image, held, err := l.image(t.Context(), Bookworm)
	if err != nil {
		t.Fatal(err)
	}
	defer held.release()
	if text, _ := os.ReadFile(filepath.Join(image, "etc/motd")); string(text) == "Welcome\n" {
		t.Error("the host wrote to its image")
	}
}

// removeTree stops at a mount, also one of the same file system.
func TestRemoveTreeStopsAtAMount(t *testing.T) {
	dir := t.TempDir()
	precious, tree := filepath.Join(dir, "precious"), filepath.Join(dir, "tree")
	for _, path := range []string{precious, tree + "/a/proc"} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(precious, "model.safetensors")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	thread, err := newThread()
	if err != nil {
		t.Fatal(err)
	}
	defer thread.end()
	err = thread.do(func() error {
		if err := unix.Mount(precious, tree+"/a/proc", "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		return removeTree(tree)
	})
	if err == nil || !strings.Contains(err.Error(), "is a mount point") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("deleted across the mount: %v", err)
	}
}
