package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"vllmhost/hostctl/ports"
	"vllmhost/hostctl/proc"
	"vllmhost/unitgen"
)

// Preflight does on paper what Guard will do before the start, while another side still serves.
type Preflight struct {
	Systemd Systemd
	Root    string // put before the paths of disks and of the kernel's limits, for tests
	GPUs    GPUs
	// Holders lists who has a socket where an instance wants to listen; nil looks at this host.
	Holders func(s unitgen.Section) ([]ports.Holder, error)
}

// Candidate is an instance that is to start once others have left.
type Candidate struct {
	Section unitgen.Section
	// Installed is the section of the unit as it is now; Section may be of a definition that is still pending.
	Installed unitgen.Section
	Leaving   []string // units that will be stopped before
	Skip      []string // checks to pass over
}

// Check returns in a few words what it found to be right, and everything that stands in the way.
func (p Preflight) Check(ctx context.Context, c Candidate) (facts []string, refusals []*Refusal, err error) {
	checks := []func(context.Context, Candidate) (string, error){p.unit, p.engine, p.port, p.gpus, p.sharedMemory, p.disk, p.limits}
	results := make([]struct {
		fact string
		err  error
	}, len(checks))
	var wait sync.WaitGroup
	for i, check := range checks {
		wait.Go(func() { results[i].fact, results[i].err = check(ctx, c) })
	}
	wait.Wait()
	for _, r := range results {
		var refusal *Refusal
		switch {
		case errors.As(r.err, &refusal) && slices.Contains(c.Skip, refusal.Check):
			facts = append(facts, refusal.Check+" skipped")
		case errors.As(r.err, &refusal):
			refusals = append(refusals, refusal)
		case r.err != nil:
			return facts, refusals, r.err
		case r.fact != "":
			facts = append(facts, r.fact)
		}
	}
	return facts, refusals, nil
}

// unit refuses where systemd would not start the unit, or not as it is written.
func (p Preflight) unit(ctx context.Context, c Candidate) (string, error) {
	unit := unitgen.UnitName(c.Section.Instance)
	load, dropIns, err := p.Systemd.Definition(ctx, unit)
	switch {
	case err != nil:
		return "", err
	case load == "masked":
		return "", &Refusal{Why: unit + " is masked", Hint: "systemctl unmask " + unit}
	case len(dropIns) == 0:
		return "", nil
	}
	status, err := p.Systemd.Unit(ctx, unit)
	if err != nil {
		return "", err
	}
	return "", checkDropIns(c.Installed, status, status.Environment)
}

func (p Preflight) engine(_ context.Context, c Candidate) (string, error) {
	return "", checkEngine(c.Section)
}

func (p Preflight) port(ctx context.Context, c Candidate) (string, error) {
	find := p.Holders
	if find == nil {
		find = func(s unitgen.Section) ([]ports.Holder, error) { return holdersAmong(s, p.members(ctx, c.Leaving)) }
	}
	var from string
	leaves := func(h ports.Holder) bool {
		if h.Process == nil || !slices.Contains(c.Leaving, h.Process.Unit) {
			return false
		}
		from, _ = unitgen.InstanceOf(h.Process.Unit)
		return true
	}
	if err := checkPort(c.Section, find, leaves); err != nil {
		return "", err
	}
	if from != "" {
		return fmt.Sprintf("%s held by %s, to be stopped", c.Section.Where(), from), nil
	}
	return c.Section.Where() + " free", nil
}

// members are the processes of units, as far as they can be found.
func (p Preflight) members(ctx context.Context, units []string) []int {
	var all []int
	for _, unit := range units {
		status, err := p.Systemd.State(ctx, unit)
		if err != nil || status.ControlGroup == "" {
			continue
		}
		pids, _ := proc.Members(status.ControlGroup)
		all = append(all, pids...)
	}
	return all
}
