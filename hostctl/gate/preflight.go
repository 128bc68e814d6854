package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"vllmhost/hostctl/ports"
	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// Preflight does on paper what Guard will do before the start, while another side still serves.
type Preflight struct {
	Root string // put before the paths of disks and of the kernel's limits, for tests
	GPUs GPUs
	// Holders lists who has a socket where an instance wants to listen; nil looks at this host.
	Holders func(s unitgen.Section) ([]ports.Holder, error)
}

// Candidate is an instance that is to start once others have left.
type Candidate struct {
	Section unitgen.Section
	// Installed is the section of the unit as it is now, and Status the state of that unit; Section may be of a definition
	// that is still pending.
	Installed unitgen.Section
	Status    systemd.UnitStatus
	Leaving   []string // units that will be stopped before
	Skip      []string // checks to pass over
}

// Check returns in a few words what it found to be right, and everything that stands in the way.
func (p Preflight) Check(ctx context.Context, c Candidate) (facts []string, refusals []*Refusal, err error) {
	checks := []func(context.Context, Candidate) (string, error){p.dropIns, p.engine, p.port, p.gpus, p.sharedMemory, p.disk, p.limits}
	for _, check := range checks {
		fact, err := check(ctx, c)
		var refusal *Refusal
		switch {
		case errors.As(err, &refusal) && slices.Contains(c.Skip, refusal.Check):
			facts = append(facts, refusal.Check+" skipped")
		case errors.As(err, &refusal):
			refusals = append(refusals, refusal)
		case err != nil:
			return facts, refusals, err
		case fact != "":
			facts = append(facts, fact)
		}
	}
	return facts, refusals, nil
}

func (p Preflight) dropIns(_ context.Context, c Candidate) (string, error) {
	if len(c.Status.DropIns) == 0 {
		return "", nil
	}
	return "", checkDropIns(c.Installed, c.Status, c.Status.Environment)
}

func (p Preflight) engine(_ context.Context, c Candidate) (string, error) {
	return "", checkEngine(c.Section)
}

func (p Preflight) port(_ context.Context, c Candidate) (string, error) {
	find := p.Holders
	if find == nil {
		find = holdersOf
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
