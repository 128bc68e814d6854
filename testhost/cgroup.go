package testhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroups is the layout of /sys/fs/cgroup that the host's systemd finds.
type Cgroups int

const (
	// Unified is cgroup v2 alone, as on any Debian since 11.
	Unified Cgroups = iota
	// Hybrid is systemd's own v1 hierarchy with a v2 one beside it, as older
	// or deliberately configured machines have it.
	Hybrid
)

func (c Cgroups) String() string {
	if c == Hybrid {
		return "hybrid"
	}
	return "unified"
}

const cgroupRoot = "/sys/fs/cgroup"

// cgroupPrefix begins the name of every cgroup of ours.
const cgroupPrefix = "testhost-"

// A cgroupTree is where one host's processes live: the same folder in every
// hierarchy of the layout, below the cgroup that this process is in. Paths are
// those of the thread that mounted them.
type cgroupTree struct {
	dirs []string // cgroup v2 first
}

// mountCgroups replaces /sys/fs/cgroup of the calling thread's namespace by
// the wanted layout, whatever the outer machine has, and returns the v2 mount
// and, for Hybrid, that of name=systemd.
func mountCgroups(layout Cgroups) (mounts []cgroupMount, err error) {
	own, err := ownCgroups()
	if err != nil {
		return nil, err
	}
	// A tmpfs covers what is there: the kernel refuses to mount a file system on
	// itself, as cgroup2 on most machines would be.
	if err := unix.Mount("tmpfs", cgroupRoot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755"); err != nil {
		return nil, fmt.Errorf("cannot mount a tmpfs on %s: %v", cgroupRoot, err)
	}
	if layout == Unified {
		if err := unix.Mount("cgroup2", cgroupRoot, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return nil, fmt.Errorf("cannot mount cgroup2 on %s: %v", cgroupRoot, err)
		}
		return []cgroupMount{{cgroupRoot, own[""]}}, nil
	}
	v1, v2 := cgroupRoot+"/systemd", cgroupRoot+"/unified"
	for _, m := range []struct{ path, fstype, data string }{
		{v2, "cgroup2", ""},
		{v1, "cgroup", "none,name=systemd"},
	} {
		if err := os.Mkdir(m.path, 0o755); err != nil {
			return nil, err
		}
		if err := unix.Mount(m.fstype, m.path, m.fstype, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, m.data); err != nil {
			return nil, fmt.Errorf("cannot mount %s on %s: %v", m.fstype, m.path, err)
		}
	}
	return []cgroupMount{{v2, own[""]}, {v1, own["name=systemd"]}}, nil
}

// A cgroupMount is a hierarchy and the place of this process in it.
type cgroupMount struct{ path, own string }

// ownCgroups reads /proc/self/cgroup: hierarchy ("" is v2) to path.
func ownCgroups() (map[string]string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	own := map[string]string{"": "/", "name=systemd": "/"}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		// A path with ".." lies outside the cgroup namespace: no place to be.
		if len(fields) == 3 && !strings.Contains(fields[2], "..") {
			own[fields[1]] = fields[2]
		}
	}
	return own, nil
}

// makeCgroup makes the cgroup of one host on the calling thread's mounts.
func makeCgroup(mounts []cgroupMount, id string) (*cgroupTree, error) {
	tree := &cgroupTree{}
	for _, m := range mounts {
		dir := filepath.Join(m.path, m.own, cgroupPrefix+id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("cannot make a cgroup: %v", err)
		}
		tree.dirs = append(tree.dirs, dir)
	}
	return tree, nil
}

// prepare makes the sub-cgroups of one boot, after removing those of the last.
// nspawn makes "supervisor" and "payload" itself, but in the v2 hierarchy alone.
// "payload/testhost" is ours: commands run by [Host.Run] go there, as a login
// has a scope; systemd leaves a cgroup that it does not know alone.
func (t *cgroupTree) prepare() error {
	if err := t.remove(); err != nil {
		return err
	}
	for _, dir := range t.dirs {
		for _, sub := range []string{"supervisor", "payload/testhost"} {
			if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// join lists the cgroup.procs files of a sub-cgroup, one a hierarchy.
func (t *cgroupTree) join(sub string) []string {
	var files []string
	for _, dir := range t.dirs {
		files = append(files, filepath.Join(dir, sub, "cgroup.procs"))
	}
	return files
}

// leader returns the pid of the host's PID 1, as the outer machine counts.
func (t *cgroupTree) leader() (int, error) {
	path := filepath.Join(t.dirs[0], "payload/init.scope/cgroup.procs")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("cannot find the host's PID 1: %s holds %q", path, text)
	}
	return pid, nil
}

// remove kills what is left in the tree and takes the folders away. Processes
// leave a cgroup when they are reaped, a moment after they die.
func (t *cgroupTree) remove() error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		var busy error
		for _, dir := range t.dirs {
			killCgroup(dir)
			busy = errors.Join(busy, removeCgroup(dir))
		}
		if busy == nil || time.Now().After(deadline) {
			return busy
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// killCgroup kills every process at or below a v1 or v2 cgroup folder.
func killCgroup(dir string) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil
		}
		text, _ := os.ReadFile(path)
		for _, field := range strings.Fields(string(text)) {
			// 0 is a process of another pid namespace: kill(0) would be us.
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		return nil
	})
}

// removeCgroup removes a cgroup folder and those below it, leaves first. The
// files in them are the kernel's and go with them.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeCgroup(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	err = unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("cannot remove the cgroup %q: %v", dir, err)
}

// cgroupNote is the file in a host's folder that says where its cgroups are,
// for the run that has to remove them when this one cannot.
const cgroupNote = "cgroups"

func (t *cgroupTree) note(path string, layout Cgroups) error {
	return os.WriteFile(path, []byte(layout.String()+"\n"+strings.Join(t.dirs, "\n")+"\n"), 0o644)
}

func readCgroupNote(path string) (Cgroups, *cgroupTree, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	layout := Unified
	if lines[0] == Hybrid.String() {
		layout = Hybrid
	}
	tree := &cgroupTree{}
	for _, dir := range lines[1:] {
		// Only what is ours: the file may be half written.
		if strings.HasPrefix(dir, cgroupRoot+"/") && dir == filepath.Clean(dir) && strings.HasPrefix(filepath.Base(dir), cgroupPrefix) {
			tree.dirs = append(tree.dirs, dir)
		}
	}
	return layout, tree, nil
}
