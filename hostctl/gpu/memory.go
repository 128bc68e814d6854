package gpu

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Memory is how much of one GPU's memory is used.
type Memory struct {
	Index    int
	UUID     string
	TotalMiB int
	UsedMiB  int
	FreeMiB  int // what a process can have: less than total minus used, by what the driver keeps (615 MiB on an H200)
}

// App is a process that holds memory of a GPU: a compute process in nvidia-smi's words.
type App struct {
	PID  int // 0 when the process is of a pid namespace that nvidia-smi cannot see
	UUID string
	MiB  int    // 0 when it is not told
	Name string // the title the process gave itself: foreign text
}

// What is asked for, as --query-gpu and --query-compute-apps have it. The name comes last, because it may hold commas.
const (
	memoryQuery = "--query-gpu=index,uuid,memory.total,memory.used,memory.free"
	appQuery    = "--query-compute-apps=pid,gpu_uuid,used_gpu_memory,process_name"
	format      = "--format=csv,noheader,nounits"
)

// Memory asks nvidia-smi how much memory of each GPU is used. The error is ErrNoTool, ErrNoAnswer, a *MismatchError, or
// nvidia-smi's own words.
func (s System) Memory(ctx context.Context) ([]Memory, error) {
	text, err := s.ask(ctx, memoryQuery, format)
	if err != nil {
		return nil, err
	}
	var all []Memory
	for line := range strings.Lines(text) {
		if m, ok := parseMemory(line); ok {
			all = append(all, m)
		}
	}
	return all, nil
}

// WatchMemory asks again and again, with one nvidia-smi for the whole time, and gives look one round of all GPUs after the
// other until it returns true. Errors are those of Memory, and ctx's.
func (s System) WatchMemory(ctx context.Context, every time.Duration, look func(round []Memory) (done bool)) error {
	devices, err := s.Devices()
	if err != nil {
		return err
	}
	var round []Memory
	return s.follow(ctx, every, func(line string) bool {
		m, ok := parseMemory(line)
		if !ok {
			return true
		}
		var done bool
		if len(round) > 0 && m.Index <= round[0].Index { // one of them is lost: the next round begins early
			done, round = look(round), nil
		}
		if round = append(round, m); len(round) == len(devices) {
			done, round = look(round), nil
		}
		return !done
	}, memoryQuery, format)
}

func parseMemory(line string) (m Memory, ok bool) {
	fields := strings.Split(line, ",")
	if len(fields) != 5 {
		return m, false
	}
	var err [4]error
	m.Index, err[0] = number(fields[0])
	m.UUID = strings.TrimSpace(fields[1])
	m.TotalMiB, err[1] = number(fields[2])
	m.UsedMiB, err[2] = number(fields[3])
	m.FreeMiB, err[3] = number(fields[4])
	for _, e := range err {
		ok = e == nil
		if !ok {
			return m, false // "[N/A]", "[Unknown Error]"
		}
	}
	return m, strings.HasPrefix(m.UUID, "GPU-")
}

// Apps asks nvidia-smi who holds memory. Errors are those of Memory.
func (s System) Apps(ctx context.Context) ([]App, error) {
	text, err := s.ask(ctx, appQuery, format)
	if err != nil {
		return nil, err
	}
	var apps []App
	for line := range strings.Lines(text) {
		fields := strings.SplitN(line, ",", 4)
		if len(fields) != 4 {
			continue // "No running processes found"
		}
		app := App{UUID: strings.TrimSpace(fields[1]), Name: strings.TrimSpace(fields[3])}
		if !strings.HasPrefix(app.UUID, "GPU-") && !strings.HasPrefix(app.UUID, "MIG-") {
			continue
		}
		app.PID, _ = number(fields[0])
		app.MiB, _ = number(fields[2]) // "[N/A]", "[Insufficient Permissions]"
		apps = append(apps, app)
	}
	return apps, nil
}

func number(field string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(field))
	return max(n, 0), err
}
