package ports

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"vllmhost/hostctl/proc"
)

// Holder is a socket and who has it open.
type Holder struct {
	Socket
	// Process is one that has the socket open, nil when none can be seen: without root, or when it is of another pid
	// namespace. Where there are several (descriptors are inherited) it is the oldest, and systemd only if nobody else.
	Process *proc.Process
	PIDs    []int // all that have it open, lowest first
}

// Holders returns the listening and the bound sockets on a TCP port and who holds them. The likely processes are looked at
// first: for a socket that one of them has open nobody else is looked for, which a host of many processes takes long.
func Holders(port int, likely ...int) ([]Holder, error) {
	sockets, err := OnPort(port)
	if err != nil {
		return nil, err
	}
	return holders(sockets, likely...)
}

// UnixHolders returns the sockets that listen on, or are bound to, the path of a unix socket and who holds them. See
// [OnPath].
func UnixHolders(path string) ([]Holder, error) {
	sockets, err := OnPath(path)
	if err != nil {
		return nil, err
	}
	return holders(sockets)
}

// String says who holds what: "0.0.0.0:8000 listening, pid 812 (python3, user root, ssh.service)".
func (h Holder) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, ", h.where(), h.State)
	if h.Process != nil {
		b.WriteString(h.Process.String())
	} else {
		fmt.Fprintf(&b, "by a process that cannot be seen (user %s)", proc.UserName(h.UID))
	}
	return b.String()
}

func holders(sockets []Socket, likely ...int) ([]Holder, error) {
	if len(sockets) == 0 {
		return nil, nil
	}
	var inodes []uint64
	for _, s := range sockets {
		inodes = append(inodes, s.Inode)
	}
	owners := proc.SocketOwnersAmong(likely, inodes...)
	if others := slices.DeleteFunc(inodes, func(inode uint64) bool { return owners[inode] != nil }); len(others) > 0 {
		found, err := proc.SocketOwners(others...)
		if err != nil {
			return nil, err
		}
		maps.Copy(owners, found)
	}
	held := make([]Holder, 0, len(sockets))
	for _, s := range sockets {
		h := Holder{Socket: s, PIDs: owners[s.Inode]}
		for _, pid := range h.PIDs {
			p, err := proc.Read(pid)
			if err != nil {
				continue // ended meanwhile
			}
			h.Process = &p
			if pid != 1 {
				break
			}
		}
		held = append(held, h)
	}
	return held, nil
}
