package hostctl

import (
	"context"
	"errors"
	"fmt"

	"vllmhost/hostctl/gate"
	"vllmhost/hostctl/swap"
	"vllmhost/unitgen"
)

// Recover repairs, at boot and before any instance starts, what operations left that were interrupted by a crash of the
// host: it makes unit files and links those of one side, claims both sides, and has the operation's unit started. It
// starts no instance and waits for nothing. It returns in a few words what it did.
func (h *Host) Recover(ctx context.Context) (done []string, err error) {
	if err := h.mustBeRoot("recover"); err != nil {
		return nil, err
	}
	open, err := h.open()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, o := range open {
		text, err := h.recover(ctx, o)
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot recover %s %s (%s): %v", o.Op, o.ID, o.Summary(), err))
			continue
		}
		done = append(done, fmt.Sprintf("%s %s (%s) was interrupted at step %q: %s", o.Op, o.ID, o.Summary(), o.Step, text))
	}
	return done, errors.Join(errs...)
}

func (h *Host) recover(ctx context.Context, o swap.Open) (text string, err error) {
	switch {
	case o.Op == opApply:
		h.interrupted(o.ID)
		return "the next apply does the rest", nil
	case o.Boot == swap.BootID():
		return "it goes on", h.takeUp(ctx, o.ID)
	case o.Plan == nil:
		return "nothing was touched", h.systemd.QueueStart(ctx, gate.OperationUnit(o.ID))
	}
	stays, goes, text := o.Plan.Restore, o.Plan.Starts(), "its old side starts"
	if o.Forward {
		stays, goes, text = o.Plan.Starts(), o.Plan.Stop, "its new side starts"
	}
	claims := swapClaims{claims: h.Claims(), op: gate.Operation{ID: o.ID, Summary: o.Plan.Summary(), Sections: o.Plan.Sections(),
		Skip: o.Request.Skip}}
	if err := claims.MayStart(instances(stays)...); err != nil {
		return "", err
	}
	runner := swap.Runner{Systemd: h.systemd, Files: h.units, Pending: h.pending}
	if err := runner.Repair(ctx, o.Plan, o.Forward); err != nil {
		return "", err
	}
	// systemd may have queued the start of the other side, by a link that is gone now.
	for _, s := range goes {
		if named(stays, s.Instance) {
			continue
		}
		if err := h.systemd.QueueStop(ctx, unitgen.UnitName(s.Instance)); err != nil {
			return "", err
		}
	}
	return text, h.systemd.QueueStart(ctx, gate.OperationUnit(o.ID))
}

func instances(sections []unitgen.Section) []string {
	var names []string
	for _, s := range sections {
		names = append(names, s.Instance)
	}
	return names
}

func named(sections []unitgen.Section, instance string) bool {
	for _, s := range sections {
		if s.Instance == instance {
			return true
		}
	}
	return false
}
