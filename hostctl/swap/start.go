package swap

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"vllmhost/unitgen"
)

// startAll starts instances one after the other: two that start together on one GPU size each other wrongly.
func (s *run) startAll(ctx context.Context, sections []unitgen.Section) (string, error) {
	var units []string
	for _, sec := range sections {
		unit := unitgen.UnitName(sec.Instance)
		if err := s.start(ctx, unit, sec); err != nil {
			return "", err
		}
		units = append(units, unit)
	}
	if len(units) == 0 {
		return "", nil
	}
	return strings.Join(units, ", ") + " started, ready", nil
}

// start starts one instance. Where a start was under way before, ours becomes one with it, and with its failure: of that
// one nobody says that it was allowed to begin, so it does not count.
func (s *run) start(ctx context.Context, unit string, sec unitgen.Section) error {
	before, err := s.Systemd.State(ctx, unit)
	if err != nil {
		return err
	}
	err = s.startOnce(ctx, unit, sec)
	if err != nil && ctx.Err() == nil && (before.Job.ID != 0 || before.Active == "activating") {
		err = s.startOnce(ctx, unit, sec)
	}
	return err
}

func (s *run) startOnce(ctx context.Context, unit string, sec unitgen.Section) error {
	// A start limit also counts the starts of swaps, which were asked for.
	if err := s.Systemd.ResetFailed(ctx, unit); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sec.StartTimeout+sec.StallTimeout+jobMargin)
	defer cancel()
	updates, err := s.Systemd.Watch(ctx, unit)
	if err != nil {
		return err
	}
	started := make(chan error, 1)
	go func() { started <- s.Systemd.Start(ctx, unit) }()
	for {
		select {
		case err := <-started:
			return startFailure(unit, err)
		case u, open := <-updates:
			if !open {
				updates = nil
			} else if u.StatusText != "" {
				s.Progress.Detail(u.StatusText)
			}
		}
	}
}

func (s *run) proveAll(ctx context.Context, sections []unitgen.Section) (string, error) {
	var answers []string
	for _, sec := range sections {
		limit := sec.FirstRequestTimeout + jobMargin
		ctx, cancel := context.WithTimeout(ctx, limit)
		answer, err := s.Prover.Prove(ctx, sec)
		cancel()
		if err != nil {
			return "", fmt.Errorf("cannot prove that %q serves: %v", sec.Instance, err)
		}
		answers = append(answers, answer)
	}
	return strings.Join(slices.Compact(answers), "; "), nil
}
