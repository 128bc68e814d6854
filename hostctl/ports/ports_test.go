package ports

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vllmhost/hostctl/proc"
)

// bind makes a socket bound to addr, on a free port if addr has none, and returns the descriptor and the port. It is what
// vLLM has while it loads: SO_REUSEADDR, bound, not listening.
func bind(t *testing.T, addr string, v6only bool) (fd, port int) {
	t.Helper()
	fd, port, err := tryBind(addr, v6only)
	if err != nil {
		t.Fatalf("bind %s: %v", addr, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd, port
}

func tryBind(addr string, v6only bool) (fd, port int, err error) {
	a := netip.MustParseAddrPort(addr)
	family, address := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: netip.IPv4Unspecified().As4(), Port: int(a.Port())})
	if a.Addr().Is4() {
		address.(*unix.SockaddrInet4).Addr = a.Addr().As4()
	} else {
		family, address = unix.AF_INET6, &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil && family == unix.AF_INET6 {
		only := 0
		if v6only {
			only = 1
		}
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only)
	}
	if err == nil {
		err = unix.Bind(fd, address)
	}
	if err != nil {
		unix.Close(fd)
		return 0, 0, err
	}
	name, err := unix.Getsockname(fd)
	switch n := name.(type) {
	case *unix.SockaddrInet4:
		port = n.Port
	case *unix.SockaddrInet6:
		port = n.Port
	}
	return fd, port, err
}

func inUse(t *testing.T, port int) []Socket {
	t.Helper()
	sockets, err := OnPort(port)
	if err != nil {
		t.Fatal(err)
	}
	return sockets
}

func TestHolders(t *testing.T) {
	me, err := proc.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"0.0.0.0", "127.0.0.1", "::", "::1"} {
		t.Run(addr, func(t *testing.T) {
			ip := netip.MustParseAddr(addr)
			fd, port := bind(t, netip.AddrPortFrom(ip, 0).String(), false)
			for _, state := range []State{Bound, Listening} {
				if state == Listening {
					if err := unix.Listen(fd, 1); err != nil {
						t.Fatal(err)
					}
				}
				holders, err := Holders(port)
				if err != nil || len(holders) != 1 {
					t.Fatalf("%s: got %v, %v, want one holder", state, holders, err)
				}
				h := holders[0]
				if h.Addr != netip.AddrPortFrom(ip, uint16(port)) || h.State != state || h.UID != os.Geteuid() {
					t.Errorf("%s: got %+v", state, h.Socket)
				}
				if !slices.Equal(h.PIDs, []int{os.Getpid()}) {
					t.Errorf("%s: held by %v, want %d", state, h.PIDs, os.Getpid())
				}
				if want := fmt.Sprintf("%s %s, %s", h.Addr, state, me); h.String() != want {
					t.Errorf("got %s, want %s", h, want)
				}
			}
		})
	}
}

// On kernels that do not report bound sockets they are found through the processes; here both ways have to agree.
func TestBoundInDescriptors(t *testing.T) {
	reported, err := kernelReportsBound()
	if err != nil {
		t.Fatal(err)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	if newer := major > 6 || major == 6 && minor >= 8; newer && !reported {
		t.Errorf("Linux %d.%d does not report bound sockets, it seems", major, minor)
	}
	for _, addr := range []string{"0.0.0.0", "127.0.0.1", "::", "::1"} {
		for _, v6only := range []bool{false, true} {
			ip := netip.MustParseAddr(addr)
			if v6only && ip.Is4() {
				continue
			}
			fd, port := bind(t, netip.AddrPortFrom(ip, 0).String(), v6only)
			sockets := inUse(t, port)
			if len(sockets) != 1 || sockets[0].State != Bound {
				t.Fatalf("%s: got %+v", addr, sockets)
			}
			if ip.IsUnspecified() && sockets[0].V6Only != v6only { // on other addresses the kernel decides
				t.Errorf("%s: V6Only is %t, want %t", addr, sockets[0].V6Only, v6only)
			}
			if found := boundInDescriptors(uint16(port)); !slices.Equal(found, sockets) {
				t.Errorf("%s: the descriptors say %+v, the kernel %+v", addr, found, sockets)
			}
			if err := unix.Listen(fd, 1); err != nil {
				t.Fatal(err)
			}
			connection, err := net.Dial("tcp", fmt.Sprintf("[::1]:%d", port))
			if err != nil {
				connection, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			}
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			accepted, _, err := unix.Accept(fd)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(accepted)
			datagrams, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
			if err != nil {
				t.Fatal(err)
			}
			defer datagrams.Close()
			if found := boundInDescriptors(uint16(port)); len(found) > 0 {
				t.Errorf("%s: a listener, a connection and a UDP socket count as %+v", addr, found)
			}
		}
	}
}

// A socket that a parent made and a child inherited is held by both, then by the child.
func TestHolderIsAnotherProcess(t *testing.T) {
	fd, port, err := tryBind("127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	child := exec.Command("sleep", "600")
	child.ExtraFiles = []*os.File{file}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()

	pids := []int{os.Getpid(), child.Process.Pid}
	slices.Sort(pids)
	if holders, err := Holders(port); err != nil || len(holders) != 1 || !slices.Equal(holders[0].PIDs, pids) {
		t.Errorf("shared: got %+v, %v, want %v", holders, err, pids)
	}
	file.Close()
	holders, err := Holders(port)
	if err != nil || len(holders) != 1 || holders[0].Process == nil || holders[0].Process.PID != child.Process.Pid {
		t.Fatalf("inherited: got %+v, %v, want %d", holders, err, child.Process.Pid)
	}
	if got := holders[0].String(); !strings.Contains(got, "bound, not listening, pid ") || !strings.Contains(got, "(sleep, user ") {
		t.Errorf("it reads: %s", got)
	}
}

func TestTimeWait(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	// Who closes first is left with TIME_WAIT. The client's end of file says that the server's close has arrived.
	server.Close()
	client.Read(make([]byte, 1))
	client.Close()
	listener.Close()
	if holders, err := Holders(port); err != nil || len(holders) != 0 {
		t.Errorf("held by %v, %v", holders, err)
	}
	// Who binds as vLLM does is not kept from it either.
	fd, _, err := tryBind(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port)).String(), false)
	if err != nil {
		t.Fatalf("what is left of a connection keeps the port: %v", err)
	}
	unix.Close(fd)
}

// A likely process that has the socket is taken for its holder; one that has not costs nothing but the look.
func TestLikelyHolders(t *testing.T) {
	_, port := bind(t, "127.0.0.1:0", false)
	for _, likely := range [][]int{nil, {os.Getpid()}, {1}, {1, os.Getpid()}} {
		holders, err := Holders(port, likely...)
		if err != nil || len(holders) != 1 || !slices.Contains(holders[0].PIDs, os.Getpid()) {
			t.Errorf("%v first: got %+v, %v", likely, holders, err)
		}
	}
}

func TestListeners(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		fd, port := bind(t, addr, false)
		if got, err := Listeners(port); err != nil || len(got) != 0 {
			t.Errorf("%s, bound: got %+v, %v", addr, got, err)
		}
		if err := unix.Listen(fd, 1); err != nil {
			t.Fatal(err)
		}
		if got, err := Listeners(port); err != nil || len(got) != 1 || got[0].State != Listening || int(got[0].Addr.Port()) != port {
			t.Errorf("%s, listening: got %+v, %v", addr, got, err)
		}
	}
}

func TestOnPortRange(t *testing.T) {
	for _, port := range []int{-1, 0, 65536} {
		if _, err := OnPort(port); err == nil {
			t.Errorf("port %d is accepted", port)
		}
		if _, err := Listeners(port); err == nil {
			t.Errorf("port %d is accepted", port)
		}
	}
}

// What Blocks says is what the kernel does: a server listens on the one address, another tries the other.
func TestBlocks(t *testing.T) {
	tests := []string{"0.0.0.0", "127.0.0.1", "127.0.0.2", "::", "::1", ":: only", "::ffff:127.0.0.1"}
	for _, first := range tests {
		addr, only := strings.CutSuffix(first, " only")
		fd, port := bind(t, netip.AddrPortFrom(netip.MustParseAddr(addr), 0).String(), only)
		if err := unix.Listen(fd, 1); err != nil {
			t.Fatal(err)
		}
		sockets := inUse(t, port)
		if len(sockets) != 1 {
			t.Fatalf("%s: got %+v", first, sockets)
		}
		for _, second := range tests {
			if strings.HasSuffix(second, " only") {
				continue // vLLM leaves IPV6_V6ONLY alone
			}
			other := netip.MustParseAddr(second)
			fd, _, err := tryBind(netip.AddrPortFrom(other, uint16(port)).String(), false)
			if err == nil {
				unix.Close(fd)
			} else if err != unix.EADDRINUSE {
				t.Fatal(err)
			}
			if got, want := sockets[0].Blocks(other), err != nil; got != want {
				t.Errorf("%s blocks %s: %t, the kernel says %t", first, second, got, want)
			}
		}
	}
}

func TestUnixHolders(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "vllm.sock")
	if holders, err := UnixHolders(path); err != nil || len(holders) != 0 {
		t.Errorf("absent: got %v, %v", holders, err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	want := func(state State) {
		t.Helper()
		holders, err := UnixHolders(dir + "/../" + filepath.Base(dir) + "/vllm.sock")
		if err != nil || len(holders) != 1 {
			t.Fatalf("%s: got %v, %v", state, holders, err)
		}
		h := holders[0]
		if h.State != state || h.Path != path || h.Process == nil || h.Process.PID != os.Getpid() || h.UID != os.Geteuid() {
			t.Errorf("%s: got %+v", state, h)
		}
		if !strings.HasPrefix(h.String(), fmt.Sprintf("%q %s, pid ", path, state)) {
			t.Errorf("it reads: %s", h)
		}
	}
	want(Bound)
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	want(Listening)
	connection, err := net.Dial("unix", path) // a connection has the path too
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	accepted, _, err := unix.Accept(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(accepted)
	want(Listening)
	unix.Close(fd)
	if holders, err := UnixHolders(path); err != nil || len(holders) != 0 {
		t.Errorf("left behind: got %v, %v", holders, err)
	}
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if holders, err := UnixHolders(plain); err != nil || len(holders) != 0 {
		t.Errorf("a plain file: got %v, %v", holders, err)
	}
}

func TestHolderThatCannotBeSeen(t *testing.T) {
	h := Holder{Socket: Socket{Addr: netip.MustParseAddrPort("[::]:8000"), State: Listening}}
	if got, want := h.String(), "[::]:8000 listening, by a process that cannot be seen (user root)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The kernel is trusted, but a message that is not understood must not crash a root program.
func FuzzParse(f *testing.F) {
	f.Add(make([]byte, inetMessageSize))
	f.Add(append(make([]byte, inetMessageSize), 5, 0, attrV6Only, 0, 1, 0, 0, 0))
	f.Add(append(make([]byte, unixMessageSize), 6, 0, attrName, 0, 'a', 'b', 0, 0, 12, 0, attrVFS, 0, 1, 2, 3, 4, 5, 6, 7, 8))
	f.Fuzz(func(t *testing.T, data []byte) {
		parseInet(data)
		parseUnix(data)
		answerError(data)
	})
}
