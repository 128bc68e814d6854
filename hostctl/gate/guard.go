package gate

import (
	"context"
	"errors"
	"fmt"

	"vllmhost/hostctl/ports"
	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// Guard decides whether an instance may start.
type Guard struct {
	Hook
	Claims Claims
	// Holders lists who has a socket where an instance wants to listen; nil looks at this host.
	Holders func(s unitgen.Section) ([]ports.Holder, error)
}

// Run lets an instance start or refuses. When it refuses, it has queued the stop of the instance's own unit: a failing
// ExecStartPre= alone would be tried again by Restart=always, at a moment nobody chose. The error is a *Refusal when
// something stands in the way, and another kind when that could not be found out; both refuse.
func (g *Guard) Run(ctx context.Context, instance string, env Environment) error {
	err := g.check(ctx, instance, env)
	if err == nil {
		g.Notify("STATUS=Starting")
		return nil
	}
	status := "Refused: " + err.Error()
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.Hint != "" {
		status += ". To type: " + refusal.Hint
	}
	g.Notify("STATUS=" + status)
	if stopErr := g.Systemd.QueueStop(ctx, unitgen.UnitName(instance)); stopErr != nil {
		g.Log.Error(fmt.Sprintf("cannot stop %s, it may be tried again: %v", unitgen.UnitName(instance), stopErr))
	}
	return err
}

func (g *Guard) check(ctx context.Context, instance string, env Environment) error {
	self, _, err := g.loaded(ctx, unitgen.UnitName(instance))
	if err != nil {
		return err
	}
	conflict := func(other unitgen.Section) error {
		why := unitgen.Conflict(self, other)
		if why == "" {
			return nil
		}
		return &Refusal{
			Why:  fmt.Sprintf("%s runs, and %s", unitgen.UnitName(other.Instance), why),
			Hint: "vllmhost swap " + instance,
		}
	}
	void := func(unit, invocationID string) (bool, error) {
		status, err := g.Systemd.Unit(ctx, unit)
		return err == nil && (status.InvocationID != invocationID || over(status)), err
	}
	if err := g.Claims.Take(self, env.InvocationID, void, conflict); err != nil {
		return err
	}
	if err := g.runningConflict(ctx, self, conflict); err != nil {
		return err
	}
	return g.free(self)
}

// runningConflict looks for instances that run without a claim: started before /run was emptied, or by an older program.
func (g *Guard) runningConflict(ctx context.Context, self unitgen.Section, conflict func(unitgen.Section) error) error {
	all, err := g.Systemd.Units(ctx, "vllm-*.service")
	if err != nil {
		return err
	}
	for _, status := range all {
		// One in start-pre has not passed its own guard yet.
		if status.Name == unitgen.UnitName(self.Instance) || over(status) || status.Sub == "start-pre" {
			continue
		}
		other, err := sectionOf(status)
		if errors.Is(err, unitgen.ErrNotOurs) {
			continue
		}
		if err != nil {
			return err
		}
		if err := conflict(other); err != nil {
			return err
		}
	}
	return nil
}

func over(status systemd.UnitStatus) bool {
	return status.Active == "inactive" || status.Active == "failed"
}

// free checks that nothing holds what the instance is going to listen on.
func (g *Guard) free(self unitgen.Section) error {
	find := g.Holders
	if find == nil {
		find = holdersOf
	}
	holders, err := find(self)
	if err != nil || len(holders) == 0 {
		return err
	}
	refusal := &Refusal{Why: fmt.Sprintf("%s is in use: %s", self.Where(), holders[0])}
	if self.Port != 0 {
		refusal.Hint = fmt.Sprintf("ss -tlnp 'sport = :%d'", self.Port)
	}
	return refusal
}
