package gate

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"vllmhost/hostctl/proc"
)

// movement tells whether a loading engine gets on: its log says something new, or its processes read, or take memory.
// Processor time alone proves little, because a hung collective spins: it counts only where the log says that the engine
// imports, compiles or captures graphs, and not for ever.
type movement struct {
	members func() ([]int, error) // of its unit
	bytes   uint64                // read or taken, so far
	faults  uint64
	cpu     time.Duration
	spun    time.Duration // for how long nothing but the processors moved
	looked  time.Time
}

func newMovement(members func() ([]int, error)) *movement { return &movement{members: members} }

const (
	// A load that moves reads or maps far more than this between two looks, in bytes; log lines alone do not.
	leastMovement = 1 << 20
	// How much of one processor counts as busy, and how long that may be all there is.
	leastCPU = 0.5
	longSpin = 10 * time.Minute
)

// moved reports whether the engine got on since the last call. told says that its log did, busy that its processors may
// be all there is to see.
func (m *movement) moved(now time.Time, told, busy bool) bool {
	pids, err := m.members()
	if err != nil {
		return told
	}
	var taken, faults uint64
	var cpu time.Duration
	for _, pid := range pids {
		taken += bytesRead(pid) + resident(pid)
		if stat, err := proc.StatOf(pid); err == nil {
			faults += stat.MajorFaults
			cpu += stat.CPU
		}
	}
	since := now.Sub(m.looked)
	spins := busy && cpu-m.cpu > time.Duration(leastCPU*float64(since))
	moved := told || taken > m.bytes+leastMovement || taken+leastMovement < m.bytes || faults > m.faults
	m.bytes, m.faults, m.cpu, m.looked = taken, faults, cpu, now
	switch {
	case moved:
		m.spun = 0
	case spins:
		m.spun += since
		moved = m.spun < longSpin
	}
	return moved
}

// bytesRead is rchar of proc_pid_io(5): what a process read, from disk or from the page cache.
func bytesRead(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		if value, ok := bytes.CutPrefix(line, []byte("rchar: ")); ok {
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
			return n
		}
	}
	return 0
}

// resident is the memory of a process, from the second field of proc_pid_statm(5); mapped weights count once touched.
func resident(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return pages * uint64(os.Getpagesize())
}
