package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Stat is what the kernel counts of a process, from proc_pid_stat(5).
type Stat struct {
	MajorFaults uint64        // pages that had to be read from disk
	CPU         time.Duration // spent by all its threads
}

// StatOf reads a process's counters. The error is [fs.ErrNotExist] when the process is gone.
func StatOf(pid int) (Stat, error) { return FS{}.StatOf(pid) }

// clockTick is USER_HZ, which is 100 on every architecture that Linux has had for 20 years (time(7)).
const clockTick = time.Second / 100

// StatOf is [StatOf] on f.
func (f FS) StatOf(pid int) (Stat, error) {
	text, err := os.ReadFile(f.path("proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Stat{}, readError(pid, err)
	}
	// The second field, the command in parentheses, may hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const third, majorFaults, user, system = 3, 12, 14, 15 // numbers as in the manual
	if len(fields) <= system-third {
		return Stat{}, readError(pid, errors.New("its stat is too short"))
	}
	var n [system + 1]uint64
	for _, i := range []int{majorFaults, user, system} {
		if n[i], err = strconv.ParseUint(string(fields[i-third]), 10, 64); err != nil {
			return Stat{}, readError(pid, fmt.Errorf("its stat has a field that is no number: %v", err))
		}
	}
	return Stat{MajorFaults: n[majorFaults], CPU: time.Duration(n[user]+n[system]) * clockTick}, nil
}
