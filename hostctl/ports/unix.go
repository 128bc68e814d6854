package ports

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Sizes, flags and attributes of include/uapi/linux/unix_diag.h.
const (
	unixRequestSize = 24 // struct unix_diag_req
	unixMessageSize = 16 // struct unix_diag_msg
	showName        = 1 << 0
	showVFS         = 1 << 1
	showUID         = 1 << 6
	attrName        = 0
	attrVFS         = 1
	attrUID         = 7
)

// OnPath returns the unix sockets that listen on a path or are bound to it, listening ones first: none when the path does
// not exist, and none for the file that a server which has ended left behind.
func OnPath(path string) ([]Socket, error) {
	path = filepath.Clean(path)
	var file unix.Stat_t
	switch err := unix.Stat(path, &file); {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot look at the socket %q: %v", path, err)
	}
	request := make([]byte, unixRequestSize)
	request[0] = unix.AF_UNIX
	native.PutUint32(request[4:], 1<<stateListen|1<<stateClose)
	native.PutUint32(request[12:], showName|showVFS|showUID)
	var exact, byName []Socket
	err := dump(request, func(data []byte) error {
		u, err := parseUnix(data)
		if err != nil {
			return err
		}
		u.socket.Path = path
		switch {
		case u.inode == uint32(file.Ino) && u.device == kernelDevice(file.Dev):
			exact = append(exact, u.socket)
		case u.name == path && u.inode == uint32(file.Ino):
			byName = append(byName, u.socket)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot look at the socket %q: %v", path, err)
	}
	if len(exact) == 0 {
		exact = byName // btrfs and overlayfs show other devices to stat(2) than to the diagnostics
	}
	slices.SortFunc(exact, func(a, b Socket) int {
		return slices.Index(order, a.State) - slices.Index(order, b.State)
	})
	return exact, nil
}

// kernelDevice writes a device number as the kernel does inside: 12 bits major, 20 bits minor.
func kernelDevice(dev uint64) uint32 { return unix.Major(dev)<<20 | unix.Minor(dev) }

// unixSocket is one answer of the diagnostics: the socket and the file that it was bound to, as the kernel found it then.
type unixSocket struct {
	socket        Socket
	name          string
	inode, device uint32
}

// parseUnix reads a struct unix_diag_msg and its attributes.
func parseUnix(data []byte) (unixSocket, error) {
	if len(data) < unixMessageSize {
		return unixSocket{}, errors.New("the kernel's socket diagnostics: short message")
	}
	u := unixSocket{socket: Socket{State: Bound, Inode: uint64(native.Uint32(data[4:]))}}
	if data[2] == stateListen {
		u.socket.State = Listening
	}
	attributes(data[unixMessageSize:], func(kind uint16, value []byte) {
		switch {
		case kind == attrName:
			u.name = string(value)
		case kind == attrVFS && len(value) >= 8:
			u.inode, u.device = native.Uint32(value), native.Uint32(value[4:])
		case kind == attrUID && len(value) >= 4:
			u.socket.UID = int(native.Uint32(value))
		}
	})
	return u, nil
}
