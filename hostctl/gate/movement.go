package gate

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// movement tells whether a loading engine gets on: its processes read, or take memory. Processor time alone proves
// nothing: a hung collective spins.
type movement struct {
	members func() ([]int, error) // of its unit
	seen    uint64
}

func newMovement(members func() ([]int, error)) *movement { return &movement{members: members} }

// A load that moves reads or maps far more than this between two looks, in bytes; log lines alone do not.
const leastMovement = 1 << 20

// moved reports whether the engine got on since the last call.
func (m *movement) moved() bool {
	pids, err := m.members()
	if err != nil {
		return false
	}
	var now uint64
	for _, pid := range pids {
		now += bytesRead(pid) + resident(pid)
	}
	moved := now > m.seen+leastMovement || now+leastMovement < m.seen
	m.seen = now
	return moved
}

// bytesRead is rchar of proc_pid_io(5): what a process read, from disk or from the page cache.
func bytesRead(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	for _, line := range bytes.Split(data, []byte("\n")) {
		if value, ok := bytes.CutPrefix(line, []byte("rchar: ")); ok {
			n, _ := strconv.ParseUint(string(value), 10, 64)
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
