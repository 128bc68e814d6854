// Package proc tells who a process is: its command, user, control group and systemd unit, and which sockets it has open.
//
// It owns the reading of /proc and of the control group file system. It starts, signals and stops nothing, and keeps
// nothing between calls. What it reads may come from hostile processes: sizes are bounded, and what it formats for people
// has its control characters escaped. It never reads a process's environment, which holds secrets.
package proc

import "path/filepath"

// FS is the file system that holds proc and sys/fs/cgroup. The zero FS is the running system's; tests set Root. The
// package's functions are the zero FS's methods.
type FS struct {
	Root string // "" for "/"
}

func (f FS) path(elem ...string) string {
	return filepath.Join("/", f.Root, filepath.Join(elem...))
}
