// Package gpu looks after the host's NVIDIA GPUs: what the driver lists, whether it is whole, how much memory is used and by
// whom. It reads what the driver shows in /proc and asks nvidia-smi; it loads no library of the driver's, so that a stuck
// driver can hold up a child of ours and never ourselves.
//
// nvidia-smi may never return, and does not know every holder of memory (a process in another container has a row without
// a name, a dead one none). Both are told, never papered over.
package gpu

import (
	"errors"
	"fmt"
)

// System is where to look. The zero value is this host.
type System struct {
	// Root is put before the paths of /proc, /dev, /etc and /usr, for tests.
	Root string
	// SMI is the command that runs nvidia-smi, for tests; nil runs it in a transient unit of its own.
	SMI []string
}

var (
	// ErrNoDriver says that the NVIDIA driver is not loaded.
	ErrNoDriver = errors.New("the NVIDIA driver is not loaded")
	// ErrNoTool says that nvidia-smi is not installed.
	ErrNoTool = errors.New("nvidia-smi is not installed")
	// ErrNoAnswer says that nvidia-smi did not answer in time: a process may be stuck in the driver.
	ErrNoAnswer = errors.New("nvidia-smi does not answer, the driver may be stuck")
)

// MismatchError says that the driver's library is of another version than the loaded module: what runs goes on, and what
// starts fails.
type MismatchError struct{ Module, Library string }

func (e *MismatchError) Error() string {
	if e.Module == "" || e.Library == "" {
		return "the driver's library is of another version than its loaded module"
	}
	return fmt.Sprintf("the driver's library is %s, its loaded module %s", e.Library, e.Module)
}
