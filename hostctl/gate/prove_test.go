package gate

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vllmhost/unitgen"
)

// Two servers of one user may share a port (SO_REUSEPORT), and the kernel divides the connections between them: whoever
// shares it with a foreign one is not healthy, whatever that one answers.
func TestTwinOnThePort(t *testing.T) {
	own, port := reusable(t, 0)
	s := unitgen.Section{Instance: "a", Host: "127.0.0.1", Port: port}
	alone := func() ([]int, error) { return []int{os.Getpid()}, nil }
	if err := ownsSocket(s, alone); !errors.Is(err, errNotListening) {
		t.Errorf("bound only: %v", err)
	}
	listen(t, own)
	if err := ownsSocket(s, alone); err != nil {
		t.Errorf("alone: %v", err)
	}

	// The twin gets its listening socket from us, and is then the only one that has it.
	twin, _ := reusable(t, port)
	listen(t, twin)
	f := os.NewFile(uintptr(twin), "twin")
	cmd := exec.Command("sleep", "60")
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	f.Close()
	var stranger *strangerError
	if err := ownsSocket(s, alone); !errors.As(err, &stranger) || !strings.Contains(err.Error(), "sleep") {
		t.Errorf("with a twin: %v; want a stranger, by its name", err)
	}
	if both := func() ([]int, error) { return []int{os.Getpid(), cmd.Process.Pid}, nil }; ownsSocket(s, both) != nil {
		t.Error("two processes of one unit may share it")
	}
}

// A twin that comes while the engine answers may have been the one who did.
func TestTwinThatComesMeanwhile(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	serveOn(listener, "a", time.Time{})
	s := unitgen.Section{Instance: "a", Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, Served: []string{"a"}}
	asked := 0
	members := func() ([]int, error) { // ours the first time only
		if asked++; asked > 1 {
			return nil, nil
		}
		return []int{os.Getpid()}, nil
	}
	var stranger *strangerError
	if _, err := prove(t.Context(), s, members, ""); !errors.As(err, &stranger) {
		t.Errorf("got %v, want a stranger", err)
	}
	if _, err := prove(t.Context(), s, func() ([]int, error) { return []int{os.Getpid()}, nil }, ""); err != nil {
		t.Errorf("alone: %v", err)
	}
}

func reusable(t *testing.T, port int) (fd, bound int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port})
	}
	if err != nil {
		t.Fatal(err)
	}
	if port == 0 {
		t.Cleanup(func() { unix.Close(fd) })
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, name.(*unix.SockaddrInet4).Port
}

func listen(t *testing.T, fd int) {
	t.Helper()
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
}
