package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/google/renameio/v2"

	"vllmhost/unitgen"
)

// Claims are what instances have taken before they start, and what operations hold while they go on: with them, of two
// that start at the same instant exactly one goes on, and nothing starts in the middle of a swap. They live in a
// directory that only root writes and that a reboot empties.
type Claims struct {
	Dir string // /run/vllmhost
}

// Start is the claim of one instance: it holds while its unit is in that invocation and neither inactive nor failed.
type Start struct {
	Section      unitgen.Section `json:"section"`
	InvocationID string          `json:"invocation_id"`
	Hash         string          `json:"hash"` // unitgen.Hash of the unit's text then
}

// Operation is the claim of a swap on all instances of both of its sides: it holds while its unit runs or is about to,
// also between the death of its process and the next one.
type Operation struct {
	ID       string            `json:"id"`
	Summary  string            `json:"summary"` // "minimax -> kimi-int4"
	Sections []unitgen.Section `json:"sections"`
	MayStart []string          `json:"may_start"` // the instances it is starting at the moment
	Skip     []string          `json:"skip"`      // checks its administrator wants to be passed over
}

// OperationUnit returns the name of the unit that carries out an operation.
func OperationUnit(id string) string { return "vllmhost-operation@" + id + ".service" }

// claims is the file.
type claims struct {
	Starts     []Start     `json:"starts"`
	Operations []Operation `json:"operations"`
}

const claimsFile = "claims.json"

// Take makes a claim under the lock of all claims. Before it writes, it asks check with all other claims that hold, and
// takes nothing when that returns an error. Claims that void and over report are forgotten.
func (c Claims) Take(s Start, void func(Start) (bool, error), over func(Operation) (bool, error),
	check func(starts []Start, operations []Operation) error) error {
	return c.change(func(all *claims) error {
		var operations []Operation
		for _, o := range all.Operations {
			gone, err := over(o)
			if err != nil {
				return err
			}
			if !gone {
				operations = append(operations, o)
			}
		}
		all.Operations = operations
		var starts []Start
		for _, other := range all.Starts {
			if other.Section.Instance == s.Section.Instance {
				continue
			}
			gone, err := void(other)
			if err != nil {
				return err
			}
			if !gone {
				starts = append(starts, other)
			}
		}
		if err := check(starts, all.Operations); err != nil {
			return err
		}
		all.Starts = append(starts, s)
		return nil
	})
}

// StartedWith returns the hash of the text that a unit had when that invocation of it was started; ok is false where no
// claim says so.
func (c Claims) StartedWith(instance, invocationID string) (hash string, ok bool) {
	all, err := c.read()
	if err != nil {
		return "", false
	}
	for _, s := range all.Starts {
		if s.Section.Instance == instance && s.InvocationID == invocationID && s.Hash != "" {
			return s.Hash, true
		}
	}
	return "", false
}

// Hold claims for an operation, in place of what it claimed before.
func (c Claims) Hold(o Operation) error {
	return c.change(func(all *claims) error {
		all.Operations = append(without(all.Operations, o.ID), o)
		return nil
	})
}

// Held returns what an operation claims; ok is false when it claims nothing.
func (c Claims) Held(id string) (o Operation, ok bool) {
	all, err := c.read()
	if err != nil {
		return Operation{}, false
	}
	for _, o := range all.Operations {
		if o.ID == id {
			return o, true
		}
	}
	return Operation{}, false
}

// Drop ends an operation's claim.
func (c Claims) Drop(id string) error {
	return c.change(func(all *claims) error {
		all.Operations = without(all.Operations, id)
		return nil
	})
}

func without(operations []Operation, id string) []Operation {
	return slices.DeleteFunc(operations, func(o Operation) bool { return o.ID == id })
}

// Skipped returns the checks that an operation wants to be passed over while it starts the instance. Anybody may ask:
// a unit's own check of its model runs as the engine's user. That one does not ask whether the operation goes on, but the
// unit's guard, which ran just before, has forgotten those that do not.
func (c Claims) Skipped(instance string) []string {
	all, err := c.read()
	if err != nil {
		return nil
	}
	return all.skipped(instance)
}

func (all claims) skipped(instance string) []string {
	var ids []string
	for _, o := range all.Operations {
		if slices.Contains(o.MayStart, instance) {
			ids = append(ids, o.Skip...)
		}
	}
	return ids
}

// change lets edit change the claims, under their lock.
func (c Claims) change(edit func(*claims) error) error {
	if err := MakeRunDir(c.Dir); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(c.Dir, "claims.lock"), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("cannot lock the claims: %v", err)
	}
	defer lock.Close() // and with it the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("cannot lock the claims: %v", err)
	}
	all, err := c.read()
	if err != nil {
		return err
	}
	if err := edit(&all); err != nil {
		return err
	}
	data, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("cannot write the claims: %v", err)
	}
	if err := renameio.WriteFile(filepath.Join(c.Dir, claimsFile), data, 0o644, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("cannot write the claims: %v", err)
	}
	return nil
}

// MakeRunDir makes the directory for claims and locks. All may read it, whatever the umask of the unit this runs in:
// what is secret in it has a mode of its own.
func MakeRunDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make %q: %v", dir, err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make %q readable: %v", dir, err)
	}
	return nil
}

// read returns the claims on disk. A file that cannot be understood holds none: whoever runs is still seen by its unit's
// state.
func (c Claims) read() (claims, error) {
	data, err := os.ReadFile(filepath.Join(c.Dir, claimsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return claims{}, nil
	}
	if err != nil {
		return claims{}, fmt.Errorf("cannot read the claims: %v", err)
	}
	var all claims
	if json.Unmarshal(data, &all) != nil {
		return claims{}, nil
	}
	return all, nil
}
