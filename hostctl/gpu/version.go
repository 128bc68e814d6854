package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// moduleVersion finds the version in /proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64
// 580.159.04  Release Build".
var moduleVersion = regexp.MustCompile(`Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s`)

// Versions returns the version of the loaded kernel module, and that of the installed library, "" where it is in none of
// the usual directories. When they differ, nothing that uses the GPUs can start; what runs goes on.
func (s System) Versions() (module, library string, err error) {
	text, err := readSmall(s.path("/proc/driver/nvidia/version"))
	if err != nil {
		return "", "", ErrNoDriver
	}
	found := moduleVersion.FindStringSubmatch(text)
	if found == nil {
		return "", "", fmt.Errorf("cannot read the driver's version in %q", strings.TrimSpace(text))
	}
	return found[1], s.libraryVersion(), nil
}

// maxLinks bounds a chain of links.
const maxLinks = 8

// libraryVersion is what libnvidia-ml.so.1 leads to. Its file is named after its version.
func (s System) libraryVersion() string {
	const soname, library = "libnvidia-ml.so.1", "libnvidia-ml.so."
	for _, dir := range s.libraryDirs() {
		// The link may be absolute: it is read, not followed out of the root.
		for target, links := soname, 0; links < maxLinks; links++ {
			next, err := os.Readlink(filepath.Join(s.path(dir), target))
			if err != nil {
				break
			}
			target = filepath.Base(next)
			if version, ok := strings.CutPrefix(target, library); ok && strings.Contains(version, ".") {
				return version
			}
		}
	}
	return ""
}

// libraryDirs are those of ld.so.conf(5), and where Debian's and Red Hat's packages put it.
func (s System) libraryDirs() []string {
	var dirs []string
	files, _ := filepath.Glob(s.path("/etc/ld.so.conf.d/*.conf"))
	for _, file := range files {
		text, _ := readSmall(file)
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); filepath.IsAbs(line) {
				dirs = append(dirs, line)
			}
		}
	}
	return append(dirs, "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
}
