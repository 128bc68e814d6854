package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Holder is memory of a process on one GPU.
type Holder struct {
	PID  int
	Name string // as in nvidia-smi: the title of the process
	GPU  int
	MiB  int
}

// HoldFlag makes nvidia-smi a process that holds memory: HoldFlag INDEX MIB.
const HoldFlag = "--testhost-hold"

const (
	bystander     = 3    // descriptors of vLLM's API server on every GPU
	defaultShare  = 0.92 // vLLM's default of --gpu-memory-utilization
	maxGeneration = 8    // parents to look for a command line in
)

// Holders reads from the /proc in root who holds memory on which GPU.
func Holders(root string, gpus []GPU) []Holder {
	dirs, _ := filepath.Glob(filepath.Join(root, "proc/[0-9]*"))
	var holders []Holder
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		counts := nodesOpen(dir)
		for _, g := range gpus {
			n := counts[fmt.Sprintf("/dev/nvidia%d", g.Index)]
			if n == 0 || n == bystander {
				continue
			}
			holders = append(holders, Holder{PID: pid, Name: title(dir), GPU: g.Index, MiB: memory(root, pid, g)})
		}
	}
	slices.SortFunc(holders, func(a, b Holder) int {
		if a.GPU != b.GPU {
			return a.GPU - b.GPU
		}
		return a.PID - b.PID
	})
	return holders
}

// nodesOpen counts a process's descriptors by path.
func nodesOpen(dir string) map[string]int {
	counts := map[string]int{}
	fds, _ := os.ReadDir(filepath.Join(dir, "fd"))
	for _, fd := range fds {
		target, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		if err == nil && strings.HasPrefix(target, "/dev/nvidia") {
			counts[target]++
		}
	}
	return counts
}

// memory is what a holder has of one GPU, in MiB.
func memory(root string, pid int, g GPU) int {
	for range maxGeneration {
		dir := filepath.Join(root, "proc", strconv.Itoa(pid))
		argv := commandLine(dir)
		if i := slices.Index(argv, HoldFlag); i >= 0 && i+2 < len(argv) {
			mib, _ := strconv.Atoi(argv[i+2])
			return mib
		}
		if share, ok := utilization(argv); ok {
			return int(share * float64(g.TotalMiB))
		}
		if pid = parent(dir); pid <= 1 {
			break
		}
	}
	share := defaultShare
	return int(share * float64(g.TotalMiB))
}

// utilization finds --gpu-memory-utilization in a command line.
func utilization(argv []string) (float64, bool) {
	const flag = "--gpu-memory-utilization"
	for i, arg := range argv {
		value, joined := strings.CutPrefix(arg, flag+"=")
		if arg == flag && i+1 < len(argv) {
			value, joined = argv[i+1], true
		}
		if share, err := strconv.ParseFloat(value, 64); joined && err == nil {
			return share, true
		}
	}
	return 0, false
}

func commandLine(dir string) []string {
	text, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

func title(dir string) string {
	first := commandLine(dir)[0]
	if first == "" {
		text, _ := os.ReadFile(filepath.Join(dir, "comm"))
		return strings.TrimSpace(string(text))
	}
	return first
}

// parent reads the fourth field of /proc/PID/stat, which follows a name that
// may hold anything.
func parent(dir string) int {
	text, _ := os.ReadFile(filepath.Join(dir, "stat"))
	_, rest, _ := strings.Cut(string(text[max(0, strings.LastIndex(string(text), ")")):]), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[1])
	return pid
}
