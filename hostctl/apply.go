package hostctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"vllmhost/conf"
	"vllmhost/hostctl/swap"
)

// ApplyOptions tune an apply.
type ApplyOptions struct {
	DryRun bool
	// Force names instances whose unit is overwritten although it was edited by hand or is not ours.
	Force []string
	// WaitLock is how long to wait for another operation to end.
	WaitLock time.Duration
}

// Applied is what an apply did, or with DryRun would do.
type Applied struct {
	ID       string // of the record; "" when nothing was changed
	Units    []UnitAction
	Reloaded bool // systemd had to read its units again
}

// Changed reports whether any file was, or would be, written or removed.
func (a Applied) Changed() bool {
	for _, u := range a.Units {
		if u.Changed() {
			return true
		}
	}
	return false
}

// ForeignUnitError says that a unit of an instance's name exists which vllmhost did not write.
type ForeignUnitError struct{ Unit, Instance, Path string }

func (e *ForeignUnitError) Error() string {
	return fmt.Sprintf("cannot write %q: it was not written by vllmhost", e.Path)
}

// Apply makes the unit files what the profile says. It starts and stops nothing, and the new text of a unit that is
// active or enabled only becomes pending. On any error every file is as it was. A second Apply of the same profile
// changes nothing: no write, no reload, no record.
func (h *Host) Apply(ctx context.Context, p *conf.Profile, o ApplyOptions) (Applied, error) {
	if !o.DryRun {
		if err := h.mustBeRoot("apply"); err != nil {
			return Applied{}, err
		}
	}
	force := map[string]bool{}
	for _, name := range o.Force {
		force[name] = true
	}
	units, err := h.plan(ctx, p, force)
	done := Applied{Units: units}
	if err != nil || o.DryRun || !done.Changed() {
		return done, firstError(err, h.foreign(units))
	}
	if err := h.foreign(units); err != nil {
		return done, err
	}
	id := h.newID()
	lock, err := h.lock(ctx, Holder{Op: opApply, ID: id}, o.WaitLock, nil)
	if err != nil {
		return Applied{}, err
	}
	defer lock.release()
	// Whoever held the lock until now may have changed what the plan rests on.
	if done.Units, err = h.plan(ctx, p, force); err != nil {
		return Applied{}, err
	}
	done.ID = id
	done.Reloaded, err = h.carryOut(ctx, done)
	return done, err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) foreign(units []UnitAction) error {
	for _, u := range units {
		if u.Action == Foreign {
			return &ForeignUnitError{Unit: u.Unit, Instance: u.Instance, Path: h.units.Path + "/" + u.Unit}
		}
	}
	return nil
}

// carryOut writes and removes files and puts all of them back when one of them, or the reload, fails.
func (h *Host) carryOut(ctx context.Context, a Applied) (reloaded bool, err error) {
	first := swap.Entry{Op: opApply, ID: a.ID, Units: map[string]string{}}
	for _, u := range a.Units {
		if u.Changed() {
			first.Units[u.Unit] = string(u.have)
		}
	}
	record, err := h.record(first)
	if err != nil {
		return false, err
	}
	defer record.Close()

	var done []UnitAction
	var names []string
	for _, u := range a.Units {
		if !u.Changed() {
			continue
		}
		done = append(done, u) // before it is tried: it may fail halfway
		if err = h.act(u); err != nil {
			break
		}
		if u.Action == Create || u.Action == Update || u.Action == Remove {
			names = append(names, u.Unit)
		}
	}
	if err == nil {
		reloaded, err = h.systemd.ReloadIfNeeded(ctx, names...)
	}
	if err == nil {
		err = record.Write(swap.Entry{State: swap.Applied})
	}
	if err != nil {
		err = errors.Join(err, h.restore(ctx, done, names))
		_ = record.Write(swap.Entry{State: swap.Refused, Error: err.Error()})
	}
	_ = h.ended(a.ID)
	return reloaded, err
}

func (h *Host) act(u UnitAction) error {
	switch u.Action {
	case Create, Update:
		if err := h.units.Write(u.Unit, u.want); err != nil {
			return err
		}
		return h.pending.Remove(u.Unit)
	case Pend:
		if err := os.MkdirAll(h.pending.Path, 0o755); err != nil {
			return fmt.Errorf("cannot keep the pending definition of %q: %v", u.Unit, err)
		}
		return h.pending.Write(u.Unit, u.want)
	case Withdraw:
		return h.pending.Remove(u.Unit)
	case Remove:
		if err := h.units.Disable(u.Unit, bootTarget); err != nil {
			return err
		}
		if err := h.pending.Remove(u.Unit); err != nil {
			return err
		}
		return h.units.Remove(u.Unit)
	}
	return nil
}

// restore puts back every file that act may have touched.
func (h *Host) restore(ctx context.Context, done []UnitAction, names []string) error {
	var errs []error
	for _, u := range done {
		switch {
		case u.Action == Pend || u.Action == Withdraw:
		case u.have == nil:
			errs = append(errs, h.units.Remove(u.Unit))
		default:
			errs = append(errs, h.putBack(u))
		}
		if u.havePending == nil {
			errs = append(errs, h.pending.Remove(u.Unit))
		} else if current, err := h.pending.Read(u.Unit); err != nil || string(current) != string(u.havePending) {
			errs = append(errs, h.pending.Write(u.Unit, u.havePending))
		}
		if u.Action == Remove && u.Enabled {
			errs = append(errs, h.units.Enable(u.Unit, bootTarget))
		}
	}
	_, err := h.systemd.ReloadIfNeeded(ctx, names...)
	return errors.Join(append(errs, err)...)
}

// putBack writes a unit's old text unless it is still there: on a full disk the file that could not be replaced need
// not be written again.
func (h *Host) putBack(u UnitAction) error {
	if current, err := h.units.Read(u.Unit); err == nil && string(current) == string(u.have) {
		return nil
	}
	return h.units.Write(u.Unit, u.have)
}
