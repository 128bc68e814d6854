package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// fileLimit bounds what is read of a file in /proc. The longest, cmdline, may have as many bytes as its process likes.
const fileLimit = 64 << 10

// Process is what one process was when it was read.
type Process struct {
	PID  int
	Comm string   // the kernel's name of it: 15 bytes at most, chosen by the process
	Args []string // its command line, cut after 64 KiB; empty for a kernel thread and for a zombie
	UID  int      // the effective user
	// Cgroup is systemd's control group path, such as "/system.slice/vllm-a.service"; Unit and Container come from it
	// and are "" where it names none. See [CgroupOf], [UnitOf] and [ContainerOf].
	Cgroup    string
	Unit      string
	Container string
	State     byte // as in proc_pid_stat(5): R, S, D (waits in the kernel, cannot be killed), Z (zombie), T, ...
}

// Read reads a process. The error is [fs.ErrNotExist] when it is gone.
func Read(pid int) (Process, error) { return FS{}.Read(pid) }

// Read is [Read] on f.
func (f FS) Read(pid int) (Process, error) {
	p := Process{PID: pid}
	// Through one directory descriptor all files are of one process: when the pid is reused meanwhile, reads fail.
	dir, err := os.OpenRoot(f.path("proc", strconv.Itoa(pid)))
	if err != nil {
		return Process{}, readError(pid, err)
	}
	defer dir.Close()
	var files [4][]byte
	for i, name := range []string{"comm", "status", "cmdline", "cgroup"} {
		if files[i], err = readFile(dir, name); err != nil {
			return Process{}, readError(pid, err)
		}
	}
	p.Comm = strings.TrimSuffix(string(files[0]), "\n")
	if p.State, p.UID, err = parseStatus(string(files[1])); err != nil {
		return Process{}, readError(pid, err)
	}
	p.Args = splitArgs(files[2])
	if p.Cgroup, err = f.systemdPath(string(files[3])); err != nil {
		return Process{}, readError(pid, err)
	}
	p.Unit, p.Container = UnitOf(p.Cgroup), ContainerOf(p.Cgroup)
	return p, nil
}

// String names a process for people: `pid 8123 (python3, user www-data, session-12.scope)`. A container is named instead
// of its scope. The command's characters that a terminal does not simply show are escaped.
func (p Process) String() string {
	parts := []string{escape(p.Comm), "user " + escape(UserName(p.UID))}
	switch {
	case p.Container != "":
		parts = append(parts, "container "+escape(p.Container))
	case p.Unit != "":
		parts = append(parts, escape(p.Unit))
	}
	return fmt.Sprintf("pid %d (%s)", p.PID, strings.Join(parts, ", "))
}

// WaitsIn returns the kernel's function that a process waits in, from /proc/PID/wchan, or "" when it runs or the kernel
// does not say.
func WaitsIn(pid int) string { return FS{}.WaitsIn(pid) }

// WaitsIn is [WaitsIn] on f.
func (f FS) WaitsIn(pid int) string {
	text, err := os.ReadFile(f.path("proc", strconv.Itoa(pid), "wchan"))
	if err != nil || string(text) == "0" {
		return ""
	}
	return escape(string(text))
}

// ExePath returns the absolute path of the program that a process runs, as the process's own mount namespace has it. The
// kernel adds " (deleted)" when the file was replaced or removed. It needs the rights to trace the process, and fails
// with [fs.ErrNotExist] for a kernel thread and when the process is gone.
func ExePath(pid int) (string, error) { return FS{}.ExePath(pid) }

// ExePath is [ExePath] on f.
func (f FS) ExePath(pid int) (string, error) {
	path, err := os.Readlink(f.path("proc", strconv.Itoa(pid), "exe"))
	if err != nil {
		return "", fmt.Errorf("cannot find the program of process %d: %w", pid, reason(err))
	}
	return path, nil
}

// All returns the ids of all processes that can be seen, in no order.
func All() ([]int, error) { return FS{}.All() }

// All is [All] on f.
func (f FS) All() ([]int, error) {
	dir, err := os.Open(f.path("proc"))
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", reason(err))
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", reason(err))
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func readFile(dir *os.Root, name string) ([]byte, error) {
	file, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, fileLimit))
}

// parseStatus takes the state letter and the effective user from the text of /proc/PID/status (proc_pid_status(5)).
func parseStatus(text string) (state byte, uid int, err error) {
	uid = -1
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case key == "State" && len(fields) > 0:
			state = fields[0][0]
		case key == "Uid" && len(fields) == 4: // real, effective, saved, file system
			if uid, err = strconv.Atoi(fields[1]); err != nil {
				return 0, 0, errors.New("its status has no valid user")
			}
		}
	}
	if state == 0 || uid < 0 {
		return 0, 0, errors.New("its status has no state or no user")
	}
	return state, uid, nil
}

func splitArgs(cmdline []byte) []string {
	cmdline = bytes.TrimSuffix(cmdline, []byte{0})
	if len(cmdline) == 0 {
		return nil
	}
	return strings.Split(string(cmdline), "\x00")
}

func readError(pid int, err error) error {
	return fmt.Errorf("cannot read process %d: %w", pid, reason(err))
}

// reason strips the operation and path from an error of package os. A process that ends while it is read gives ESRCH
// instead of ENOENT; both mean that it is gone.
func reason(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return fs.ErrNotExist
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
