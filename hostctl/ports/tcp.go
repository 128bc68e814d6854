package ports

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// States of TCP (include/net/tcp_states.h). A bound socket that does not listen is asked for as stateBoundInactive and
// comes back as stateClose.
const (
	stateClose         = 7
	stateListen        = 10
	stateBoundInactive = 13
)

// Sizes and attributes of include/uapi/linux/inet_diag.h.
const (
	inetRequestSize = 56 // struct inet_diag_req_v2
	inetMessageSize = 72 // struct inet_diag_msg
	attrV6Only      = 11 // INET_DIAG_SKV6ONLY
)

// dumpTCP returns the sockets on a port that are in one of the states (a set of bits), as far as the kernel reports them.
func dumpTCP(port uint16, states uint32) ([]Socket, error) {
	var sockets []Socket
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		err := dump(inetRequest(family, port, states), func(data []byte) error {
			s, err := parseInet(data)
			// The filter by port is the kernel's for some states and ours for all.
			if err == nil && s.State != "" && s.Addr.Port() == port {
				sockets = append(sockets, s)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return sockets, nil
}

func inetRequest(family byte, port uint16, states uint32) []byte {
	request := make([]byte, inetRequestSize)
	request[0], request[1] = family, unix.IPPROTO_TCP
	native.PutUint32(request[4:], states)
	binary.BigEndian.PutUint16(request[8:], port)
	return request
}

// parseInet reads a struct inet_diag_msg and its attributes. State is "" for a state that was not asked for.
func parseInet(data []byte) (Socket, error) {
	if len(data) < inetMessageSize {
		return Socket{}, errors.New("the kernel's socket diagnostics: short message")
	}
	addr := netip.AddrFrom4([4]byte(data[8:12]))
	if data[0] == unix.AF_INET6 {
		addr = netip.AddrFrom16([16]byte(data[8:24])).Unmap()
	}
	s := Socket{
		Addr:  netip.AddrPortFrom(addr, binary.BigEndian.Uint16(data[4:])),
		UID:   int(native.Uint32(data[64:])),
		Inode: uint64(native.Uint32(data[68:])),
	}
	switch data[1] {
	case stateListen:
		s.State = Listening
	case stateClose:
		s.State = Bound
	}
	attributes(data[inetMessageSize:], func(kind uint16, value []byte) {
		if kind == attrV6Only && len(value) == 1 {
			s.V6Only = value[0] != 0
		}
	})
	return s, nil
}

// boundReported is what kernelReportsBound found, once it did: a kernel does not change.
var boundReported struct {
	sync.Mutex
	known, yes bool
}

func boundAreReported() (bool, error) {
	b := &boundReported
	b.Lock()
	defer b.Unlock()
	if b.known {
		return b.yes, nil
	}
	yes, err := kernelReportsBound()
	b.known, b.yes = err == nil, yes
	return yes, err
}

// kernelReportsBound tries out whether the kernel reports bound sockets, with one of ours on a free port of its choice.
func kernelReportsBound() (bool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	// With SO_REUSEADDR it is in no server's way that has it too, should one want the port at this instant.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return false, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return false, err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return false, err
	}
	var self unix.Stat_t
	if err := unix.Fstat(fd, &self); err != nil {
		return false, err
	}
	seen := false
	err = dump(inetRequest(unix.AF_INET, uint16(name.(*unix.SockaddrInet4).Port), 1<<stateBoundInactive), func(data []byte) error {
		s, err := parseInet(data)
		seen = seen || err == nil && s.Inode == self.Ino
		return err
	})
	return seen, err
}
