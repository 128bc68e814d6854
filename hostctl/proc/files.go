package proc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// FileID names a file whatever its path: in other mount namespaces it has another one, and deleted it has none.
type FileID struct{ Dev, Ino uint64 }

// FileUsers returns for each of the files, given with its name, the processes that have it open or mapped, lowest pid
// first; a file that nobody uses is absent. hidden is how many processes could not be looked into, which as root are none:
// as long as there are any, nothing is proven unused.
func FileUsers(names map[FileID]string) (users map[FileID][]int, hidden int, err error) {
	return FS{}.FileUsers(names)
}

// FileUsers is [FileUsers] on f.
func (f FS) FileUsers(names map[FileID]string) (users map[FileID][]int, hidden int, err error) {
	if len(names) == 0 {
		return nil, 0, nil
	}
	pids, err := f.All()
	if err != nil {
		return nil, 0, err
	}
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	users = make(map[FileID][]int)
	for _, pid := range pids {
		found := func(id FileID) {
			if _, ok := names[id]; ok && !slices.Contains(users[id], pid) {
				users[id] = append(users[id], pid)
			}
		}
		if isHidden(f.eachOpenFile(pid, wanted, found)) || isHidden(f.eachMappedFile(pid, found)) {
			hidden++
		}
	}
	for _, list := range users {
		slices.Sort(list)
	}
	return users, hidden, nil
}

// isHidden reports whether a process could not be looked into, for another reason than its end.
func isHidden(err error) bool {
	return err != nil && !isGone(err) && !errors.Is(err, syscall.ESRCH)
}

// eachOpenFile calls found for each descriptor of a process whose path ends with one of the names. Only those are looked
// at: a file on a network that hangs would hang us as well. Whatever the path to a file is in the process's own mount
// namespace, it ends with the file's name.
func (f FS) eachOpenFile(pid int, names map[string]bool, found func(FileID)) error {
	dir, err := os.Open(f.path("proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return err
	}
	defer dir.Close()
	fds, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	var target [unix.PathMax]byte
	for _, fd := range fds {
		n, err := unix.Readlinkat(int(dir.Fd()), fd, target[:])
		if err != nil {
			continue // closed meanwhile
		}
		path := strings.TrimSuffix(string(target[:n]), " (deleted)")
		if !names[path[strings.LastIndexByte(path, '/')+1:]] {
			continue
		}
		var stat unix.Stat_t
		if err := unix.Fstatat(int(dir.Fd()), fd, &stat, 0); err == nil {
			found(FileID{stat.Dev, stat.Ino})
		}
	}
	return nil
}

// eachMappedFile calls found for each file in a process's address space: the fourth and fifth column of proc_pid_maps(5).
func (f FS) eachMappedFile(pid int, found func(FileID)) error {
	file, err := os.Open(f.path("proc", strconv.Itoa(pid), "maps"))
	if err != nil {
		return err
	}
	defer file.Close()
	var last string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || fields[4] == "0" || fields[3]+fields[4] == last {
			continue
		}
		last = fields[3] + fields[4]
		if id, ok := mappedFile(fields[3], fields[4]); ok {
			found(id)
		}
	}
	return lines.Err()
}

// mappedFile reads "00:1a" and "4711".
func mappedFile(device, inode string) (FileID, bool) {
	var major, minor uint32
	if _, err := fmt.Sscanf(device, "%x:%x", &major, &minor); err != nil {
		return FileID{}, false
	}
	ino, err := strconv.ParseUint(inode, 10, 64)
	return FileID{unix.Mkdev(major, minor), ino}, err == nil
}
