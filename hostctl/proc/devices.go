package proc

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// DeviceUsers returns which processes have device nodes open whose path begins with prefix: by pid, how many descriptors
// of each path. The path is as the process itself sees it, which is the same in containers that get the nodes under
// their own names. Processes whose descriptors may not be read are passed over.
func DeviceUsers(prefix string) (map[int]map[string]int, error) { return FS{}.DeviceUsers(prefix) }

// DeviceUsers is [DeviceUsers] on f.
func (f FS) DeviceUsers(prefix string) (map[int]map[string]int, error) {
	pids, err := f.All()
	if err != nil {
		return nil, err
	}
	users := make(map[int]map[string]int)
	for _, pid := range pids {
		counts := f.descriptors(pid, prefix)
		if len(counts) > 0 {
			users[pid] = counts
		}
	}
	return users, nil
}

// descriptors counts a process's descriptors by path, of paths that begin with prefix.
func (f FS) descriptors(pid int, prefix string) map[string]int {
	dir, err := os.Open(f.path("proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var counts map[string]int
	var target [128]byte // a device node's path is short; a longer one is cut, and none of them
	for _, name := range names {
		n, err := unix.Readlinkat(int(dir.Fd()), name, target[:])
		if err != nil || !strings.HasPrefix(string(target[:n]), prefix) {
			continue
		}
		if counts == nil {
			counts = make(map[string]int)
		}
		counts[string(target[:n])]++
	}
	return counts
}
