package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"

	"vllmhost/unitgen"
)

// Claims are what instances have taken before they start: with them, of two that start at the same instant exactly one
// goes on. They live in a directory of root's that a reboot empties.
type Claims struct {
	Dir string // /run/vllmhost
}

// claim is one instance's: it holds while its unit is in that invocation and neither inactive nor failed.
type claim struct {
	Section      unitgen.Section `json:"section"`
	InvocationID string          `json:"invocation_id"`
}

const claimsFile = "claims.json"

// Take claims for s under the lock of all claims. Before it writes, it asks check about every other claim, and takes
// nothing when that returns an error; claims that drop reports as void are forgotten.
func (c Claims) Take(s unitgen.Section, invocationID string, void func(unit, invocationID string) (bool, error), check func(other unitgen.Section) error) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot make %q: %v", c.Dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(c.Dir, "claims.lock"), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("cannot lock the claims: %v", err)
	}
	defer lock.Close() // and with it the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("cannot lock the claims: %v", err)
	}
	claims, err := c.read()
	if err != nil {
		return err
	}
	kept := []claim{{s, invocationID}}
	for _, other := range claims {
		if other.Section.Instance == s.Instance {
			continue
		}
		gone, err := void(unitgen.UnitName(other.Section.Instance), other.InvocationID)
		if err != nil {
			return err
		}
		if gone {
			continue
		}
		if err := check(other.Section); err != nil {
			return err
		}
		kept = append(kept, other)
	}
	data, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("cannot write the claims: %v", err)
	}
	if err := renameio.WriteFile(filepath.Join(c.Dir, claimsFile), data, 0o600); err != nil {
		return fmt.Errorf("cannot write the claims: %v", err)
	}
	return nil
}

// read returns the claims on disk. A file that cannot be understood holds none: whoever runs is still seen by its unit's
// state.
func (c Claims) read() ([]claim, error) {
	data, err := os.ReadFile(filepath.Join(c.Dir, claimsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the claims: %v", err)
	}
	var claims []claim
	if json.Unmarshal(data, &claims) != nil {
		return nil, nil
	}
	return claims, nil
}
