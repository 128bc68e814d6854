package hostctl

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"vllmhost/hostctl/gate"
	"vllmhost/hostctl/proc"
	"vllmhost/hostctl/swap"
	"vllmhost/unitgen"
)

// SwapOptions tune a swap.
type SwapOptions struct {
	DryRun        bool     // plan only
	StayOnFailure bool     // do not roll back
	KeepEdits     bool     // start units that were edited by hand as they are
	Skip          []string // checks to pass over, of [gate.Checks]
	Progress      swap.Progress
}

// UnknownInstanceError says that an instance has no unit. Known lists those that have one.
type UnknownInstanceError struct {
	Name  string
	Known []string
}

func (e *UnknownInstanceError) Error() string { return fmt.Sprintf("instance %q has no unit", e.Name) }

// Swap moves the host to the named instances. It works from what apply wrote, not from the profile. An error means that
// nothing was touched; what became of a swap that began is in the Result.
func (h *Host) Swap(ctx context.Context, names []string, o SwapOptions) (*swap.Plan, swap.Result, error) {
	id := swap.NewID()
	if o.DryRun {
		plan, err := h.planSwap(ctx, id, names, o)
		return plan, swap.Result{}, err
	}
	if err := h.mustBeRoot("swap"); err != nil {
		return nil, swap.Result{}, err
	}
	lock, err := h.lock(Holder{Op: "swap", ID: id, Summary: "-> " + strings.Join(names, ", ")})
	if err != nil {
		return nil, swap.Result{}, err
	}
	defer lock.release()
	plan, claims, err := h.claimSwap(ctx, id, names, o)
	if err != nil {
		return nil, swap.Result{}, err
	}
	defer claims.drop()
	record, err := h.record(firstEntry(plan))
	if err != nil {
		return nil, swap.Result{}, err
	}
	defer record.Close()
	runner := swap.Runner{
		Systemd: h.systemd, Files: h.units, Pending: h.pending,
		Prover: gate.Prover{Systemd: h.systemd}, Cgroups: cgroups{},
		Preflight: preflight{gate.Preflight{GPUs: h.GPUs()}, o.Skip}, Resources: resources{h, o.Skip}, Claims: claims,
		Progress: lockedProgress{o.Progress, lock}, Record: record, StayOnFailure: o.StayOnFailure,
	}
	return plan, runner.Run(ctx, plan), nil
}

// claimSwap plans a swap and claims both of its sides. Whatever started before the claim was written is part of the
// plan, which is made again until both are of the same instances; whatever starts after it meets the claim in its guard.
func (h *Host) claimSwap(ctx context.Context, id string, names []string, o SwapOptions) (*swap.Plan, *swapClaims, error) {
	self, err := proc.StatOf(os.Getpid())
	if err != nil {
		return nil, nil, err
	}
	claims := &swapClaims{claims: h.Claims(), op: gate.Operation{ID: id, PID: os.Getpid(), Birth: self.Birth, Skip: o.Skip}}
	for {
		plan, err := h.planSwap(ctx, id, names, o)
		if err == nil && claims.covers(plan) {
			return plan, claims, nil
		}
		if err == nil {
			claims.op.Summary, claims.op.Sections = plan.Summary(), plan.Sections()
			err = claims.hold()
		}
		if err != nil {
			claims.drop()
			return nil, nil, err
		}
	}
}

// swapClaims are the claims of one swap.
type swapClaims struct {
	claims gate.Claims
	op     gate.Operation
	held   bool
}

// covers reports whether all instances of a plan are claimed.
func (c *swapClaims) covers(plan *swap.Plan) bool {
	return c.held && !slices.ContainsFunc(plan.Sections(), func(s unitgen.Section) bool {
		return !slices.ContainsFunc(c.op.Sections, func(o unitgen.Section) bool { return o.Instance == s.Instance })
	})
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
		_ = c.claims.Drop(c.op.ID) // it ends with this process, at the latest
	}
}

func (h *Host) planSwap(ctx context.Context, id string, names []string, o SwapOptions) (*swap.Plan, error) {
	facts, err := h.facts(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(facts, func(f swap.Fact) bool { return f.Section.Instance == name }) {
			return nil, &UnknownInstanceError{name, instances(facts)}
		}
	}
	for i, f := range facts {
		if f.Edited && o.KeepEdits {
			facts[i].Edited, facts[i].Pending = false, nil
		}
	}
	plan, problems := swap.NewPlan(id, facts, names)
	if len(problems) > 0 {
		return nil, &swap.RefusedError{Problems: problems}
	}
	return plan, nil
}

func instances(facts []swap.Fact) []string {
	var names []string
	for _, f := range facts {
		names = append(names, f.Section.Instance)
	}
	return names
}

// facts gathers what a plan rests on, ordered by instance.
func (h *Host) facts(ctx context.Context) ([]swap.Fact, error) {
	files, err := h.unitFiles()
	if err != nil {
		return nil, err
	}
	var facts []swap.Fact
	for name, f := range files {
		if !f.ours {
			continue
		}
		fact := swap.Fact{Section: f.section, Text: f.text, Pending: f.pending, Edited: f.edited}
		if fact.Status, err = h.systemd.Unit(ctx, name); err != nil {
			return nil, err
		}
		if fact.Newer, err = h.units.NewerThan(name, fact.Status.ActiveSince); err != nil {
			return nil, err
		}
		if fact.Enabled, err = h.units.Enabled(name, bootTarget); err != nil {
			return nil, err
		}
		facts = append(facts, fact)
	}
	sort.Slice(facts, func(i, j int) bool { return facts[i].Section.Instance < facts[j].Section.Instance })
	return facts, nil
}

func firstEntry(p *swap.Plan) swap.Entry {
	e := swap.Entry{Op: "swap", ID: p.ID, Summary: p.Summary(), Units: map[string]string{}, Displaced: p.Displaced}
	for _, t := range p.New {
		e.New = append(e.New, t.Section.Instance)
		if t.Install != nil {
			e.Units[unitgen.UnitName(t.Section.Instance)] = string(t.Before)
		}
	}
	for _, s := range p.Restore {
		e.Old = append(e.Old, s.Instance)
	}
	return e
}

// cgroups are those of this host.
type cgroups struct{}

func (cgroups) Members(cgroup string) ([]int, error) { return proc.Members(cgroup) }

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
