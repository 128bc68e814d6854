package proc

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// SocketOwners returns, for each of the socket inodes, the processes that have that socket open, lowest pid first; an
// inode that nobody has open is absent. A socket may have several: descriptors are inherited. Processes whose descriptors
// may not be read (other users', without root) are passed over.
func SocketOwners(inodes ...uint64) (map[uint64][]int, error) { return FS{}.SocketOwners(inodes...) }

// SocketOwners is [SocketOwners] on f.
func (f FS) SocketOwners(inodes ...uint64) (map[uint64][]int, error) {
	if len(inodes) == 0 {
		return nil, nil
	}
	pids, err := f.All()
	if err != nil {
		return nil, err
	}
	return f.SocketOwnersAmong(pids, inodes...), nil
}

// SocketOwnersAmong is [SocketOwners] for the given processes only. With the members of one control group it is much
// cheaper than a look at every descriptor of the host.
func SocketOwnersAmong(pids []int, inodes ...uint64) map[uint64][]int {
	return FS{}.SocketOwnersAmong(pids, inodes...)
}

// SocketOwnersAmong is [SocketOwnersAmong] on f.
func (f FS) SocketOwnersAmong(pids []int, inodes ...uint64) map[uint64][]int {
	wanted := make(map[uint64]bool, len(inodes))
	for _, inode := range inodes {
		wanted[inode] = true
	}
	owners := make(map[uint64][]int)
	for _, pid := range pids {
		f.eachSocket(pid, func(_ int, inode uint64) {
			if wanted[inode] && !slices.Contains(owners[inode], pid) {
				owners[inode] = append(owners[inode], pid)
			}
		})
	}
	for _, pids := range owners {
		slices.Sort(pids)
	}
	return owners
}

// SocketsOf returns the sockets that a process has open, as descriptor number to inode: none when the process is gone or
// may not be read.
func SocketsOf(pid int) map[int]uint64 { return FS{}.SocketsOf(pid) }

// SocketsOf is [SocketsOf] on f.
func (f FS) SocketsOf(pid int) map[int]uint64 {
	sockets := make(map[int]uint64)
	f.eachSocket(pid, func(fd int, inode uint64) { sockets[fd] = inode })
	return sockets
}

// eachSocket calls visit for each descriptor of a process that is a socket.
func (f FS) eachSocket(pid int, visit func(fd int, inode uint64)) {
	dir, err := os.Open(f.path("proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return
	}
	var target [64]byte // "socket:[18446744073709551615]" fits; a longer target is no socket
	for _, name := range names {
		n, err := unix.Readlinkat(int(dir.Fd()), name, target[:])
		if err != nil {
			continue // closed meanwhile
		}
		if inode, ok := socketInode(target[:n]); ok {
			if fd, err := strconv.Atoi(name); err == nil {
				visit(fd, inode)
			}
		}
	}
}

// socketInode takes the inode from the target of a descriptor's link, such as "socket:[4711]".
func socketInode(target []byte) (uint64, bool) {
	digits, ok := bytes.CutPrefix(target, []byte("socket:["))
	if !ok {
		return 0, false
	}
	digits, ok = bytes.CutSuffix(digits, []byte("]"))
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(string(digits), 10, 64)
	return inode, err == nil
}
