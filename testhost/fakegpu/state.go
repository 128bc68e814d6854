package fakegpu

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// State is what nvidia-smi sees at one moment.
type State struct {
	GPUs    []GPU
	Holders []Holder
	UsedMiB map[int]int // by index
}

// Read looks at the host with that root; now is the time.
func Read(root string, now time.Time) (State, error) {
	gpus, err := Installed(root)
	if err != nil {
		return State{}, err
	}
	s := State{UsedMiB: map[int]int{}}
	gone := switchLines(root, "gone")
	for _, g := range gpus {
		if _, lost := gone[g.Index]; !lost {
			s.GPUs = append(s.GPUs, g)
		}
	}
	s.Holders = Holders(root, s.GPUs)
	for _, h := range s.Holders {
		s.UsedMiB[h.GPU] += h.MiB
	}
	if err := s.keepReleased(root, now); err != nil {
		return State{}, err
	}
	for index, mib := range switchLines(root, "foreign") {
		s.UsedMiB[index] += mib
	}
	for _, g := range s.GPUs {
		s.UsedMiB[g.Index] = min(s.UsedMiB[g.Index], g.TotalMiB)
	}
	return s, nil
}

// memoryNote is what one call of nvidia-smi leaves for the next.
type memoryNote struct {
	UsedMiB map[int]int       // when somebody held it last
	Gone    map[int]time.Time // when the first call found less
}

// keepReleased keeps memory used for slow-release seconds after its holder
// went. Nothing runs between two calls, so the clock starts at the first call
// that finds it gone.
func (s *State) keepReleased(root string, now time.Time) error {
	text, err := os.ReadFile(filepath.Join(root, "etc/fakegpu/slow-release"))
	if err != nil {
		return nil
	}
	delay, err := time.ParseDuration(strings.TrimSpace(string(text)) + "s")
	if err != nil {
		return fmt.Errorf("cannot read slow-release: %v", err)
	}
	file, err := os.OpenFile(filepath.Join(root, "run/fakegpu.json"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	note := memoryNote{}
	_ = json.NewDecoder(file).Decode(&note) // empty the first time
	if note.UsedMiB == nil {
		note = memoryNote{map[int]int{}, map[int]time.Time{}}
	}
	for _, g := range s.GPUs {
		held, before := s.UsedMiB[g.Index], note.UsedMiB[g.Index]
		if held >= before {
			note.UsedMiB[g.Index] = held
			delete(note.Gone, g.Index)
			continue
		}
		since, known := note.Gone[g.Index]
		if !known {
			since = now
			note.Gone[g.Index] = now
		}
		if now.Sub(since) < delay {
			s.UsedMiB[g.Index] = before
			continue
		}
		note.UsedMiB[g.Index] = held
		delete(note.Gone, g.Index)
	}
	if _, err := file.Seek(0, 0); err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	return json.NewEncoder(file).Encode(note)
}

// switchLines reads a switch of lines "INDEX [MIB]".
func switchLines(root, name string) map[int]int {
	text, _ := os.ReadFile(filepath.Join(root, "etc/fakegpu", name))
	values := map[int]int{}
	for line := range strings.Lines(string(text)) {
		var index, mib int
		if n, _ := fmt.Sscan(line, &index, &mib); n > 0 {
			values[index] = mib
		}
	}
	return values
}
