package proc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A tree is a hierarchy of control groups in which systemd may keep the processes of its units: where it is mounted, and
// the field of /proc/PID/cgroup that gives a process's place in it (cgroups(7)).
type tree struct {
	dir   string
	field string // "" is version 2, written "0::"
}

// trees returns the hierarchies to look at, the one that systemd reads first in front. It goes by the same marks as
// systemd (src/basic/cgroup-util.c): version 2 at /sys/fs/cgroup ("unified"), or version 2 at /sys/fs/cgroup/unified
// beside version 1 ("hybrid", where name=systemd holds the same paths), or version 1 alone ("legacy").
func (f FS) trees() []tree {
	base := f.path("sys/fs/cgroup")
	legacy := tree{filepath.Join(base, "systemd"), "name=systemd"}
	switch {
	case isVersion2(base):
		return []tree{{base, ""}}
	case isVersion2(filepath.Join(base, "unified")):
		return []tree{{filepath.Join(base, "unified"), ""}, legacy}
	default:
		return []tree{legacy}
	}
}

// isVersion2 says whether dir is the root of a version 2 hierarchy: only those have this file.
func isVersion2(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return err == nil
}

// CgroupOf returns the control group that systemd keeps a process in, such as "/system.slice/vllm-a.service": the path that
// is also the unit's ControlGroup property. It is "/" for a process outside all groups, and begins with "/.." for one
// outside this control group namespace. The error is [fs.ErrNotExist] when the process is gone.
func CgroupOf(pid int) (string, error) { return FS{}.CgroupOf(pid) }

// CgroupOf is [CgroupOf] on f.
func (f FS) CgroupOf(pid int) (string, error) {
	file, err := os.Open(f.path("proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", cgroupError(pid, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, fileLimit))
	if err != nil {
		return "", cgroupError(pid, err)
	}
	group, err := f.systemdPath(string(text))
	if err != nil {
		return "", cgroupError(pid, err)
	}
	return group, nil
}

func cgroupError(pid int, err error) error {
	return fmt.Errorf("cannot find the control group of process %d: %w", pid, reason(err))
}

// systemdPath picks systemd's path from the text of /proc/PID/cgroup. Where there are two trees, one that nobody sorts
// processes in (every path is "/") does not count.
func (f FS) systemdPath(text string) (string, error) {
	found := ""
	for _, t := range f.trees() {
		for line := range strings.Lines(text) {
			fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3) // the path may hold colons
			if len(fields) == 3 && fields[1] == t.field && strings.HasPrefix(fields[2], "/") && (found == "" || found == "/") {
				found = strings.TrimSuffix(fields[2], " (deleted)") // the group was removed, the process not yet
			}
		}
	}
	if found == "" {
		return "", errors.New("none of its groups is in the tree that systemd uses")
	}
	return found, nil
}

// UnitOf returns the unit of the system's manager that a control group belongs to: "vllm-a.service" for
// "/system.slice/vllm-a.service/worker". The service of a user's own manager counts to "user@1000.service". It is "" where
// the path names no unit. Slices are not units here.
func UnitOf(cgroup string) string {
	for name := range strings.SplitSeq(strings.Trim(cgroup, "/"), "/") {
		if path.Ext(name) == ".slice" {
			continue
		}
		name = strings.TrimPrefix(name, "_") // systemd's mark for a name that looks like one of the kernel's files
		switch ext := path.Ext(name); ext {
		case ".service", ".scope", ".socket", ".mount", ".swap":
			if name != ext {
				return name
			}
		}
		return ""
	}
	return ""
}

// ContainerOf returns a short name of the container that a control group belongs to, or "": the first 12 digits of the
// identifier for Docker, Podman and Kubernetes, the name for systemd-nspawn and LXC.
func ContainerOf(cgroup string) string {
	for name := range strings.SplitSeq(strings.Trim(cgroup, "/"), "/") {
		scope, isScope := strings.CutSuffix(name, ".scope")
		if id := scope[strings.LastIndexByte(scope, '-')+1:]; isContainerID(id) {
			return id[:12]
		}
		if machine, ok := strings.CutPrefix(scope, "machine-"); ok && isScope {
			return machine
		}
		if machine, ok := strings.CutPrefix(name, "systemd-nspawn@"); ok {
			return strings.TrimSuffix(machine, ".service")
		}
		if machine, ok := strings.CutPrefix(name, "lxc.payload."); ok {
			return machine
		}
	}
	return ""
}

func isContainerID(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// Members returns the processes in a control group and in the groups below it, in no order: none when the group does not
// exist, and none for "", which is the ControlGroup property of a unit that does not run. "/" and paths with ".." are
// errors: no unit has them, and their members are everybody.
func Members(cgroup string) ([]int, error) { return FS{}.Members(cgroup) }

// Members is [Members] on f.
func (f FS) Members(cgroup string) ([]int, error) {
	if cgroup == "" {
		return nil, nil
	}
	if !path.IsAbs(cgroup) || path.Clean(cgroup) != cgroup || cgroup == "/" {
		return nil, fmt.Errorf("cannot list the processes of control group %q: not the path of a unit", cgroup)
	}
	for _, t := range f.trees() {
		root := filepath.Join(t.dir, cgroup)
		if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		pids, err := membersBelow(root)
		if err != nil {
			return nil, fmt.Errorf("cannot list the processes of control group %q: %v", cgroup, err)
		}
		return pids, nil
	}
	return nil, nil
}

// membersBelow reads cgroup.procs of root and of all directories below. Groups that vanish meanwhile have no members.
func membersBelow(root string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(root, func(dir string, entry fs.DirEntry, err error) error {
		if isGone(err) || err == nil && !entry.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		switch {
		case isGone(err), errors.Is(err, syscall.EOPNOTSUPP): // a threaded group: its processes are its parent's
			return nil
		case err != nil:
			return err
		}
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("cgroup.procs has %q", field)
			}
			if pid > 0 { // 0 stands for a process of another pid namespace
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids, err
}

// isGone says whether a control group was removed before or while it was read.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}
