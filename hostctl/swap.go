package hostctl

import (
	"context"
	"fmt"
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
	DryRun        bool // plan only
	StayOnFailure bool // do not roll back
	Progress      swap.Progress
}

// UnknownInstanceError says that an instance has no unit. Known lists those that have one.
type UnknownInstanceError struct {
	Name  string
	Known []string
}

func (e *UnknownInstanceError) Error() string { return fmt.Sprintf("instance %q has no unit", e.Name) }

// RefusedError says why a swap was refused before anything was touched.
type RefusedError struct{ Problems []swap.Problem }

func (e *RefusedError) Error() string {
	var texts []string
	for _, p := range e.Problems {
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "; ")
}

// Swap moves the host to the named instances. It works from what apply wrote, not from the profile. An error means that
// nothing was touched; what became of a swap that began is in the Result.
func (h *Host) Swap(ctx context.Context, names []string, o SwapOptions) (*swap.Plan, swap.Result, error) {
	if o.DryRun {
		plan, err := h.planSwap(ctx, swap.NewID(), names)
		return plan, swap.Result{}, err
	}
	if err := h.mustBeRoot("swap"); err != nil {
		return nil, swap.Result{}, err
	}
	id := swap.NewID()
	lock, err := h.lock(Holder{Op: "swap", ID: id, Summary: "-> " + strings.Join(names, ", ")})
	if err != nil {
		return nil, swap.Result{}, err
	}
	defer lock.release()
	plan, err := h.planSwap(ctx, id, names)
	if err != nil {
		return nil, swap.Result{}, err
	}
	record, err := h.record(firstEntry(plan))
	if err != nil {
		return nil, swap.Result{}, err
	}
	defer record.Close()
	runner := swap.Runner{
		Systemd: h.systemd, Files: h.units, Pending: h.pending,
		Prover: gate.Prover{Systemd: h.systemd}, Cgroups: cgroups{},
		Progress: lockedProgress{o.Progress, lock}, Record: record, StayOnFailure: o.StayOnFailure,
	}
	return plan, runner.Run(ctx, plan), nil
}

func (h *Host) planSwap(ctx context.Context, id string, names []string) (*swap.Plan, error) {
	facts, err := h.facts(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(facts, func(f swap.Fact) bool { return f.Section.Instance == name }) {
			return nil, &UnknownInstanceError{name, instances(facts)}
		}
	}
	plan, problems := swap.NewPlan(id, facts, names)
	if len(problems) > 0 {
		return nil, &RefusedError{problems}
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
	for _, s := range p.Stop {
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
