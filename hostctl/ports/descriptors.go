package ports

import (
	"errors"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"vllmhost/hostctl/proc"
)

// boundInDescriptors finds the bound sockets on a port for kernels that do not report them. It takes a copy of each socket
// descriptor of each process in this network namespace (pidfd_getfd(2)), asks the copy for its address, and closes it. To
// ask changes nothing, and the copy lives for microseconds. Processes that may not be traced are passed over.
func boundInDescriptors(port uint16) []Socket {
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil
	}
	pids, err := proc.All()
	if err != nil {
		return nil
	}
	var found []Socket
	seen := make(map[uint64]bool)
	for _, pid := range pids {
		if there, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net"); err != nil || there != here {
			continue
		}
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		for fd, inode := range proc.SocketsOf(pid) {
			if seen[inode] {
				continue
			}
			seen[inode] = true
			if s, ok := boundSocket(pidfd, fd); ok && s.Addr.Port() == port {
				found = append(found, s)
			}
		}
		unix.Close(pidfd)
	}
	return found
}

// boundSocket describes a descriptor of another process, if it is a TCP socket that is bound, does not listen and has no
// peer.
func boundSocket(pidfd, theirs int) (Socket, bool) {
	fd, err := unix.PidfdGetfd(pidfd, theirs, 0)
	if err != nil {
		return Socket{}, false
	}
	defer unix.Close(fd)
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || protocol != unix.IPPROTO_TCP {
		return Socket{}, false
	}
	if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens != 0 {
		return Socket{}, false
	}
	if _, err := unix.Getpeername(fd); !errors.Is(err, unix.ENOTCONN) {
		return Socket{}, false
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return Socket{}, false
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return Socket{}, false
	}
	s := Socket{State: Bound, UID: int(stat.Uid), Inode: stat.Ino}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		s.Addr = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		s.Addr = netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
		only, err := unix.GetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
		s.V6Only = err == nil && only != 0
	default:
		return Socket{}, false
	}
	return s, true
}
