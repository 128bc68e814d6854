package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// visibleGPUs lists the minor numbers of the GPUs that CUDA_VISIBLE_DEVICES leaves and whose nodes exist in dir.
func visibleGPUs(dir string) []int {
	var found []int
	for minor := range 64 {
		if _, err := os.Stat(gpuNode(dir, minor)); err == nil {
			found = append(found, minor)
		}
	}
	chosen, given := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	if !given {
		return found
	}
	var visible []int
	for name := range strings.SplitSeq(chosen, ",") {
		if minor, ok := gpuNamed(strings.TrimSpace(name), found); ok {
			visible = append(visible, minor)
		}
	}
	return visible
}

func gpuNode(dir string, minor int) string { return filepath.Join(dir, fmt.Sprintf("nvidia%d", minor)) }

// gpuNamed finds the GPU that an entry of CUDA_VISIBLE_DEVICES means: an index into those there are, or a UUID (or the
// beginning of one), which the driver lists in /proc/driver/nvidia/gpus/*/information.
func gpuNamed(name string, found []int) (minor int, ok bool) {
	if n, err := strconv.Atoi(name); err == nil {
		if n < 0 || n >= len(found) {
			return 0, false
		}
		return found[n], true
	}
	if name == "" {
		return 0, false
	}
	files, _ := filepath.Glob("/proc/driver/nvidia/gpus/*/information")
	for _, file := range files {
		text, _ := readSmallFile(file)
		fields := map[string]string{}
		for line := range strings.SplitSeq(string(text), "\n") {
			key, value, _ := strings.Cut(line, ":")
			fields[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
		if strings.HasPrefix(fields["GPU UUID"], name) {
			n, err := strconv.Atoi(fields["Device Minor"])
			return n, err == nil
		}
	}
	return 0, false
}

// holdGPUs opens the nodes of GPUs n times each and keeps them open until the process ends. That is the simulated GPU
// memory: whoever holds a node holds memory on that GPU.
func holdGPUs(dir string, minors []int, n int) {
	paths := []string{filepath.Join(dir, "nvidiactl"), filepath.Join(dir, "nvidia-uvm")}
	for _, minor := range minors {
		for range n {
			paths = append(paths, gpuNode(dir, minor))
		}
	}
	for _, path := range paths {
		for _, mode := range []int{unix.O_RDWR, unix.O_RDONLY} {
			// The descriptor is left open on purpose. Non-blocking, because a test may have put a fifo there.
			if _, err := unix.Open(path, mode|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err == nil {
				break
			}
		}
	}
}
