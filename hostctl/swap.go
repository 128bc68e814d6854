package hostctl

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"vllmhost/hostctl/gate"
	"vllmhost/hostctl/swap"
	"vllmhost/unitgen"
)

// PlanSwap says what a swap would do. It works from what apply wrote, not from the profile, and changes nothing. A swap
// that cannot be planned is a *swap.RefusedError.
func (h *Host) PlanSwap(ctx context.Context, req swap.Request) (*swap.Plan, error) {
	facts, err := h.facts(ctx)
	if err != nil {
		return nil, err
	}
	return h.planFrom(ctx, facts, req)
}

func (h *Host) planFrom(ctx context.Context, facts []swap.Fact, req swap.Request) (_ *swap.Plan, err error) {
	if req.Back != "" {
		if req.Names, err = h.backTo(facts, req.Back); err != nil {
			return nil, err
		}
	}
	for _, name := range req.Names {
		if !slices.ContainsFunc(facts, func(f swap.Fact) bool { return f.Section.Instance == name }) {
			return nil, &swap.RefusedError{Problems: []swap.Problem{unknown(name, facts)}}
		}
	}
	for i := range facts {
		f := &facts[i]
		if f.Edited && req.KeepEdits {
			f.Edited, f.Pending = false, nil
		}
		if !slices.Contains(req.Names, f.Section.Instance) || !running(f.Status) {
			continue
		}
		// Of what runs already it matters since when. All else that systemd has to say of a unit is for the preflight.
		unit := unitgen.UnitName(f.Section.Instance)
		if f.Status, err = h.systemd.Unit(ctx, unit); err != nil {
			return nil, err
		}
		if f.Newer, err = h.newer(*f); err != nil {
			return nil, err
		}
	}
	plan, problems := swap.NewPlan("", facts, req.Names)
	if len(problems) > 0 {
		return nil, &swap.RefusedError{Problems: problems}
	}
	return plan, nil
}

// newer reports whether a running unit has another text than when it was started. Its guard noted that one; without such
// a note the times of both tell it, as well as the host's clock was kept.
func (h *Host) newer(f swap.Fact) (bool, error) {
	if hash, ok := h.Claims().StartedWith(f.Section.Instance, f.Status.InvocationID); ok {
		return hash != unitgen.Hash(f.Text), nil
	}
	return h.units.NewerThan(unitgen.UnitName(f.Section.Instance), f.Status.ActiveSince)
}

// unknown says that an instance has no unit, and which do.
func unknown(name string, facts []swap.Fact) swap.Problem {
	p := swap.Problem{ID: "unit", Text: fmt.Sprintf("instance %q has no unit", name), Hints: []string{"vllmhost apply"}}
	var known []string
	for _, f := range facts {
		known = append(known, f.Section.Instance)
	}
	if len(known) > 0 {
		p.Hints = append(p.Hints, "instances that have one: "+strings.Join(known, ", "))
	}
	return p
}

// claimSwap plans a swap and claims both of its sides. Whatever started before the claim was written is part of the
// plan, which is made again until nothing else runs; whatever starts after it meets the claim in its guard.
func (h *Host) claimSwap(ctx context.Context, claims *swapClaims, id string, req swap.Request) (*swap.Plan, error) {
	for {
		facts, err := h.facts(ctx)
		if err != nil {
			return nil, err
		}
		plan, err := h.planFrom(ctx, facts, req)
		if err != nil {
			return nil, err
		}
		plan.ID = id
		claims.op.Summary, claims.op.Sections = plan.Summary(), plan.Sections()
		if err := claims.hold(); err != nil {
			return nil, err
		}
		states, err := h.states(ctx)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(facts, func(f swap.Fact) bool {
			return running(f.Status) != running(states[unitgen.UnitName(f.Section.Instance)])
		}) {
			return plan, nil
		}
	}
}

// swapClaims are the claims of one swap.
type swapClaims struct {
	claims gate.Claims
	op     gate.Operation
	held   bool
}

// MayStart lets these instances pass their guards, and none else of both sides.
func (c *swapClaims) MayStart(instances ...string) error {
	c.op.MayStart = instances
	return c.hold()
}

func (c *swapClaims) hold() error {
	c.held = true
	return c.claims.Hold(c.op)
}

func (c *swapClaims) drop() {
	if c.held {
		_ = c.claims.Drop(c.op.ID) // it ends with the operation's unit, at the latest
	}
}

// facts gathers what a plan rests on, ordered by instance, but for what matters of the instances to start alone.
func (h *Host) facts(ctx context.Context) ([]swap.Fact, error) {
	files, err := h.unitFiles()
	if err != nil {
		return nil, err
	}
	states, err := h.states(ctx)
	if err != nil {
		return nil, err
	}
	var facts []swap.Fact
	for name, f := range files {
		if !f.ours {
			continue
		}
		fact := swap.Fact{Section: f.section, Text: f.text, Pending: f.pending, Edited: f.edited}
		fact.Status = states[name]
		if fact.Status.Active == "" { // not loaded
			fact.Status.Active, fact.Status.Sub = "inactive", "dead"
		}
		if fact.Enabled, err = h.units.Enabled(name, bootTarget); err != nil {
			return nil, err
		}
		facts = append(facts, fact)
	}
	sort.Slice(facts, func(i, j int) bool { return facts[i].Section.Instance < facts[j].Section.Instance })
	return facts, nil
}

// lockedProgress also tells whoever finds the lock taken how far the swap is.
type lockedProgress struct {
	swap.Progress
	lock *lock
}

func (p lockedProgress) Begin(step string) {
	p.lock.step(step)
	p.Progress.Begin(step)
}

func (p lockedProgress) Undo(step string) {
	p.lock.step("undo " + step)
	p.Progress.Undo(step)
}
