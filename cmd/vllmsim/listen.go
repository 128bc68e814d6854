package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// errAddressInUse is what Python says for EADDRINUSE.
var errAddressInUse = errors.New("OSError: [Errno 98] Address already in use")

// boundSocket has its address but does not listen yet: connections are refused, and other sockets with SO_REUSEADDR may
// still take the same address. The first one to listen wins.
type boundSocket struct {
	fd  int
	url string // as the log shows it
}

// bind takes the address that the options name. It fails with errAddressInUse when somebody listens there, or has bound
// without SO_REUSEADDR, or when the file of a Unix socket exists.
func bind(o *options) (*boundSocket, error) {
	if o.uds != "" {
		return bindAddress(unix.AF_UNIX, &unix.SockaddrUnix{Name: o.uds}, func(unix.Sockaddr) string { return "unix:" + o.uds })
	}
	scheme := "http"
	if o.certfile != "" {
		scheme = "https"
	}
	host, err := resolve(o.host)
	if err != nil {
		return nil, err
	}
	url := func(port int) string {
		return fmt.Sprintf("%s://%s", scheme, net.JoinHostPort(o.host, fmt.Sprint(port)))
	}
	if host.Is4() {
		return bindAddress(unix.AF_INET, &unix.SockaddrInet4{Port: o.port, Addr: host.As4()},
			func(sa unix.Sockaddr) string { return url(sa.(*unix.SockaddrInet4).Port) })
	}
	return bindAddress(unix.AF_INET6, &unix.SockaddrInet6{Port: o.port, Addr: host.As16()},
		func(sa unix.Sockaddr) string { return url(sa.(*unix.SockaddrInet6).Port) })
}

func resolve(host string) (netip.Addr, error) {
	if host == "" {
		host = "0.0.0.0"
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap(), nil
	}
	ips, err := net.LookupIP(host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("socket.gaierror: [Errno -2] Name or service not known")
	}
	addr, _ := netip.AddrFromSlice(ips[0])
	return addr.Unmap(), nil
}

func bindAddress(family int, sa unix.Sockaddr, url func(unix.Sockaddr) string) (*boundSocket, error) {
	// Close-on-exec: the engine's processes must not keep the port when the main process dies.
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, pythonError(err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return nil, pythonError(err)
	}
	if err := unix.Bind(fd, sa); err != nil {
		unix.Close(fd)
		return nil, pythonError(err)
	}
	got, err := unix.Getsockname(fd)
	if err != nil {
		return nil, pythonError(err)
	}
	return &boundSocket{fd: fd, url: url(got)}, nil
}

// listen makes the socket accept. The inode stays the one that was bound.
func (b *boundSocket) listen() (net.Listener, error) {
	if err := unix.Listen(b.fd, 2048); err != nil {
		return nil, pythonError(err)
	}
	f := os.NewFile(uintptr(b.fd), b.url)
	defer f.Close()
	return net.FileListener(f)
}

func pythonError(err error) error {
	var errno unix.Errno
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return errAddressInUse
	case errors.Is(err, unix.EACCES):
		return errors.New("PermissionError: [Errno 13] Permission denied")
	case errors.As(err, &errno):
		return fmt.Errorf("OSError: [Errno %d] %v", int(errno), errno)
	}
	return err
}
