package testhost

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// tools are the programs that booting a host takes, with their Debian package.
var tools = []struct{ program, pkg string }{
	{"systemd-nspawn", "systemd-container"},
	{"mmdebstrap", "mmdebstrap"},
	{"nsenter", "util-linux"},
	{"unshare", "util-linux"},
}

// CheckMachine says whether hosts can be booted here: root, on Linux with
// /proc and /sys, with the programs of [Open]. The error is what to type.
func CheckMachine() error {
	if os.Geteuid() != 0 {
		return errors.New("booting hosts needs root; run this with sudo, or as root in a container with CAP_SYS_ADMIN")
	}
	var missing, packages []string
	for _, tool := range tools {
		if _, err := exec.LookPath(tool.program); err != nil {
			missing = append(missing, tool.program)
			packages = append(packages, tool.pkg)
		}
	}
	if missing != nil {
		slices.Sort(packages)
		return fmt.Errorf("booting hosts needs %s; to install: apt-get install --no-install-recommends %s",
			strings.Join(missing, ", "), strings.Join(slices.Compact(packages), " "))
	}
	for _, path := range []string{"/proc/self/mountinfo", "/sys/kernel", "/dev/null"} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("booting hosts needs /proc, /sys and /dev; in a chroot, mount them first (%v)", err)
		}
	}
	return nil
}
