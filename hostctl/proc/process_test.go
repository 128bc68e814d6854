package proc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// sleeper starts a process that does nothing until the test ends.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func TestRead(t *testing.T) {
	cmd := sleeper(t)
	p, err := Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if p.PID != cmd.Process.Pid || p.Comm != "sleep" || !slices.Equal(p.Args, []string{"sleep", "600"}) || p.UID != os.Geteuid() {
		t.Errorf("got %+v", p)
	}
	if p.State != 'S' && p.State != 'R' {
		t.Errorf("state %q", p.State)
	}
	if group, err := CgroupOf(p.PID); err != nil || group != p.Cgroup {
		t.Errorf("CgroupOf says %q, %v; Read says %q", group, err, p.Cgroup)
	}
	if exe, err := ExePath(p.PID); err != nil || filepath.Base(exe) != "sleep" && !strings.Contains(exe, "coreutils") && !strings.Contains(exe, "busybox") {
		t.Errorf("it runs %q, %v", exe, err)
	}

	cmd.Process.Kill()
	zombie := waitForZombie(t, p.PID)
	if len(zombie.Args) != 0 || zombie.Comm != "sleep" {
		t.Errorf("a zombie is %+v", zombie)
	}
	cmd.Wait()
	for what, ask := range map[string]func() error{
		"Read":     func() error { _, err := Read(p.PID); return err },
		"CgroupOf": func() error { _, err := CgroupOf(p.PID); return err },
		"ExePath":  func() error { _, err := ExePath(p.PID); return err },
	} {
		if err := ask(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of a process that is gone: %v", what, err)
		}
	}
}

// A process may end between any two reads; that is the same as if it had been gone before.
func TestReadOfOneThatEnds(t *testing.T) {
	for range 200 {
		cmd := exec.Command("true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waited := make(chan struct{})
		go func() { cmd.Wait(); close(waited) }()
		for {
			p, err := Read(cmd.Process.Pid)
			if err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
				break
			}
			if p.PID != cmd.Process.Pid || p.State == 0 {
				t.Errorf("got %+v", p)
			}
		}
		<-waited
	}
}

// waitForZombie waits until a killed child is one.
func waitForZombie(t *testing.T, pid int) Process {
	t.Helper()
	if err := WaitExit(t.Context(), pid); err != nil {
		t.Fatal(err)
	}
	p, err := Read(pid)
	if err != nil || p.State != 'Z' {
		t.Fatalf("a killed child is %+v, %v", p, err)
	}
	return p
}

// A name is whatever the process likes: prctl(PR_SET_NAME) takes any 15 bytes.
func TestHostileNames(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"proc/7/comm":                      "a) R 1\n\x1b[2J\n",
		"proc/7/status":                    "Name:\ta) R 1\\n\x1b[2J\nState:\tD (disk sleep)\nUid:\t1\t0\t1\t1\n",
		"proc/7/cmdline":                   strings.Repeat("x", 100<<10) + "\x00",
		"proc/7/cgroup":                    "0::/system.slice/a\x1b.service\n",
		"sys/fs/cgroup/cgroup.controllers": "",
	})
	p, err := FS{dir}.Read(7)
	if err != nil {
		t.Fatal(err)
	}
	if p.Comm != "a) R 1\n\x1b[2J" || p.State != 'D' || p.UID != 0 || len(p.Args) != 1 || len(p.Args[0]) != fileLimit {
		t.Errorf("got comm %q, state %q, user %d, %d bytes of arguments", p.Comm, p.State, p.UID, len(p.Args[0]))
	}
	if got, want := p.String(), `pid 7 (a) R 1\n\x1b[2J, user root, a\x1b.service)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestString(t *testing.T) {
	tests := []struct {
		p    Process
		want string
	}{
		{Process{PID: 812, Comm: "sshd", Unit: "ssh.service"}, "pid 812 (sshd, user root, ssh.service)"},
		{Process{PID: 2, Comm: "kthreadd"}, "pid 2 (kthreadd, user root)"},
		{Process{PID: 9, Comm: "python3", UID: 4_000_000_000, Unit: "docker-x.scope", Container: "0123456789ab"}, "pid 9 (python3, user uid 4000000000, container 0123456789ab)"},
		{Process{PID: 9, Comm: "\u202egnp.exe\xff"}, `pid 9 (\u202egnp.exe\xff, user root)`},
	}
	for _, test := range tests {
		if got := test.p.String(); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}

func TestWaitExit(t *testing.T) {
	t.Run("killed meanwhile", func(t *testing.T) {
		cmd := sleeper(t)
		done := make(chan error, 1)
		go func() { done <- WaitExit(context.Background(), cmd.Process.Pid) }()
		select {
		case err := <-done:
			t.Fatalf("it returned before the process ended: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		cmd.Process.Kill()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("it does not notice the end")
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := WaitExit(ctx, sleeper(t).Process.Pid); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("cancelled before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := WaitExit(ctx, sleeper(t).Process.Pid); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("gone", func(t *testing.T) {
		cmd := sleeper(t)
		cmd.Process.Kill()
		cmd.Wait()
		if err := WaitExit(t.Context(), cmd.Process.Pid); err != nil {
			t.Error(err)
		}
	})
}

func TestSocketOwners(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File() // a second descriptor of the same socket
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "600")
	child.ExtraFiles = []*os.File{file}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()

	want := []int{os.Getpid(), child.Process.Pid}
	slices.Sort(want)
	owners, err := SocketOwners(stat.Ino, 1<<63)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[uint64][]int{stat.Ino: want}, owners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	among := SocketOwnersAmong([]int{child.Process.Pid, 1 << 22, want[0]}, stat.Ino)
	if diff := cmp.Diff(map[uint64][]int{stat.Ino: want}, among); diff != "" {
		t.Errorf("owners among (-want +got):\n%s", diff)
	}
	if sockets := SocketsOf(child.Process.Pid); len(sockets) != 1 || sockets[3] != stat.Ino {
		t.Errorf("the child has %v, want descriptor 3 to be socket %d", sockets, stat.Ino)
	}
	pids, err := All()
	if err != nil || !slices.Contains(pids, child.Process.Pid) {
		t.Errorf("All has not the child: %v", err)
	}
}

func TestUserName(t *testing.T) {
	if got := UserName(0); got != "root" {
		t.Errorf("user 0 is %q", got)
	}
	if got := UserName(4_000_000_000); got != "uid 4000000000" {
		t.Errorf("a user nobody knows is %q", got)
	}
}

// write makes files below dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func ExampleProcess_String() {
	fmt.Println(Process{PID: 8123, Comm: "python3", UID: 0, Unit: "session-12.scope"})
	// Output: pid 8123 (python3, user root, session-12.scope)
}
