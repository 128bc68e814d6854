package ports

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// native is the byte order of netlink's own fields; ports and addresses are big endian.
var native = binary.NativeEndian

// attributeTypeMask takes the flags off an attribute's type (NLA_TYPE_MASK).
const attributeTypeMask = 0x3fff

// dump sends one request for a dump to the kernel's socket diagnostics (sock_diag(7)) and calls row with each answer,
// header removed. The slice is only valid during the call. A dump that the kernel marks as inconsistent, because the table
// changed under it, is used as it is: the socket that came or went could as well have done so a moment earlier or later.
func dump(request []byte, row func([]byte) error) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return fmt.Errorf("the kernel's socket diagnostics: %v", err)
	}
	defer unix.Close(fd)
	// The kernel answers within the call to send and recv; the limit only keeps a kernel bug from hanging us.
	limit := unix.Timeval{Sec: 5}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return fmt.Errorf("the kernel's socket diagnostics: %v", err)
	}
	message := make([]byte, 0, unix.SizeofNlMsghdr+len(request))
	message = native.AppendUint32(message, uint32(cap(message)))
	message = native.AppendUint16(message, unix.SOCK_DIAG_BY_FAMILY)
	message = native.AppendUint16(message, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	message = append(message, make([]byte, 8)...) // sequence number and port: one request a socket needs neither
	message = append(message, request...)
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("the kernel's socket diagnostics: %v", err)
	}
	buffer := make([]byte, 64<<10) // the kernel fills at most 32 KiB at a time (netlink(7))
	for {
		n, from, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("the kernel's socket diagnostics: %v", err)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue // not from the kernel
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return fmt.Errorf("the kernel's socket diagnostics: %v", err)
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return nil
			case unix.NLMSG_ERROR:
				return fmt.Errorf("the kernel's socket diagnostics: %v", answerError(m.Data))
			case unix.SOCK_DIAG_BY_FAMILY:
				if err := row(m.Data); err != nil {
					return err
				}
			}
		}
	}
}

func answerError(data []byte) error {
	if len(data) < 4 {
		return errors.New("short error message")
	}
	return syscall.Errno(-int32(native.Uint32(data)))
}

// attributes calls visit for each netlink attribute in data (netlink(7): length with header, type, value, padding to 4).
func attributes(data []byte, visit func(kind uint16, value []byte)) {
	for len(data) >= 4 {
		length := int(native.Uint16(data))
		if length < 4 || length > len(data) {
			return
		}
		visit(native.Uint16(data[2:])&attributeTypeMask, data[4:length])
		data = data[min((length+3)&^3, len(data)):]
	}
}
