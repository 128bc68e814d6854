package gate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"vllmhost/unitgen"
)

// What an engine needs of a host beside GPUs, at the least. Measured on vLLM 0.32: each worker makes a ring buffer of up
// to 240 MiB, and the engine core one of 160 MiB; what torch and Triton compile takes some hundred MB.
const (
	shmWorker = 240 << 20
	shmCore   = 160 << 20
	cacheRoom = 512 << 20
	stateRoom = 16 << 20
)

// minimums are limits of the kernel's for all processes together, and their least values: what the kernel itself sets is
// above them, so that a lower one was somebody's wish.
var minimums = []struct {
	path  string // below /proc/sys
	least int64
	why   string
}{
	{"fs/nr_open", 65536, "vLLM opens up to 65,535 files in one process"},
	{"vm/max_map_count", 65530, "an engine maps weights, libraries and compiled code"},
	{"kernel/threads-max", 8192, "an engine has thousands of threads"},
}

// limits refuses where the kernel was told to allow too little.
func (p Preflight) limits(context.Context, Candidate) (string, error) {
	for _, m := range minimums {
		text, err := os.ReadFile(filepath.Join(p.Root, "/proc/sys", m.path))
		if err != nil {
			continue // another kernel
		}
		value, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || value >= m.least {
			continue
		}
		name := strings.ReplaceAll(m.path, "/", ".")
		return "", &Refusal{Check: CheckLimits, Hint: fmt.Sprintf("sysctl -w %s=%d", name, m.least),
			Why: fmt.Sprintf("%s is %d, and %d is wanted: %s", name, value, m.least, m.why)}
	}
	return "", nil
}

// disk refuses where the engine's caches, or the texts and records of ours, find no room. A disk that fills up later
// spoils a start in ways that no engine words well.
func (p Preflight) disk(context.Context, Candidate) (string, error) {
	for _, need := range []struct {
		dir  string
		room int64
		what string
	}{
		{"/var/cache", cacheRoom, "what the engine compiles"},
		{"/var/lib", stateRoom, "the records of operations"},
		{"/etc/systemd/system", 1 << 20, "the unit files"},
	} {
		free, err := p.free(need.dir)
		if err == nil && free < need.room {
			return "", &Refusal{Check: CheckDisk, Hint: "df -h " + need.dir,
				Why: fmt.Sprintf("%s has %s free, and %s is wanted for %s", need.dir, megabytes(free), megabytes(need.room), need.what)}
		}
	}
	return "", nil
}

// sharedMemory refuses where an engine that uses the host's /dev/shm finds too little there: it would die of SIGBUS in
// the middle of its work.
func (p Preflight) sharedMemory(_ context.Context, c Candidate) (string, error) {
	if c.Section.Shm != "host" {
		return "", nil
	}
	want := int64(shmCore + shmWorker*max(1, workers(c.Section)))
	free, err := p.free("/dev/shm")
	if err != nil || free >= want {
		return "", nil
	}
	return "", &Refusal{Check: CheckShm, Hint: "vllmhost clean",
		Why: fmt.Sprintf("/dev/shm has %s free, and %s is wanted", megabytes(free), megabytes(want))}
}

// workers is how many processes with a GPU an instance has.
func workers(s unitgen.Section) int {
	if s.AllGPUs {
		return s.GPUCount
	}
	return len(s.GPUs)
}

// free is how many bytes of a file system others than root may still use.
func (p Preflight) free(dir string) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(filepath.Join(p.Root, dir), &stat); err != nil {
		return 0, err
	}
	return int64(stat.Bavail) * stat.Bsize, nil
}

func megabytes(n int64) string { return fmt.Sprintf("%d MB", n/1e6) }
