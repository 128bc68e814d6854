package swap

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"vllmhost/unitgen"
)

// Step is one part of a swap, with what undoes it beside it. Do and Undo are idempotent; both return a few words on
// what they found or did.
type Step struct {
	Name    string
	Summary string // for a dry run
	Do      func(ctx context.Context, s *run) (detail string, err error)
	// Undo restores what was before Do, however far Do came, and says nothing when there was nothing to restore. Nil when
	// Do changes nothing, or nothing that can be restored.
	Undo func(ctx context.Context, s *run) (detail string, err error)
}

// Steps are all steps of a swap, in order.
func Steps() []Step {
	return []Step{
		{"prepare", "install the new definition", installNew, restoreOld},
		{"stop", "stop what conflicts", stopOld, startOld},
		{"start", "start and wait until ready", startNew, stopNew},
		{"probe", "prove that it serves", probeNew, nil},
		{"promote", "start it at boot instead", promote, demote},
	}
}

// bootTarget is whose .wants links make an instance start at boot. The link is the commit point of a swap.
const bootTarget = "multi-user.target"

// Margins beyond the limits that systemd keeps itself: a job that is not over by then is never going to be.
const (
	jobMargin    = 30 * time.Second
	emptyTimeout = 10 * time.Second // from SIGKILL until a cgroup is empty
)

func installNew(ctx context.Context, s *run) (string, error) {
	var written []string
	for _, t := range s.plan.New {
		unit := unitgen.UnitName(t.Section.Instance)
		if t.Install == nil {
			continue
		}
		if err := s.Files.Write(unit, t.Install); err != nil {
			return "", err
		}
		written = append(written, unit)
	}
	if len(written) == 0 {
		return "the definition is in place", nil
	}
	reloaded, err := s.Systemd.ReloadIfNeeded(ctx, written...)
	if err != nil {
		return "", err
	}
	for _, unit := range written {
		if err := s.Pending.Remove(unit); err != nil {
			return "", err
		}
	}
	detail := strings.Join(written, ", ") + " written"
	if reloaded {
		detail += ", systemd reloaded"
	}
	return detail, nil
}

func restoreOld(ctx context.Context, s *run) (string, error) {
	if s.restored {
		return "", nil
	}
	var restored []string
	for _, t := range s.plan.New {
		unit := unitgen.UnitName(t.Section.Instance)
		if t.Install == nil {
			continue
		}
		err := s.Pending.Write(unit, t.Install)
		if err == nil && t.Before == nil {
			err = s.Files.Remove(unit)
		} else if err == nil {
			err = s.Files.Write(unit, t.Before)
		}
		if err != nil {
			return "", err
		}
		restored = append(restored, unit)
	}
	if len(restored) == 0 {
		return "", nil
	}
	if _, err := s.Systemd.ReloadIfNeeded(ctx, restored...); err != nil {
		return "", err
	}
	s.restored = true
	return strings.Join(restored, ", ") + " restored", nil
}

func stopOld(ctx context.Context, s *run) (string, error) {
	if len(s.plan.Stop) == 0 {
		return "nothing runs that is in the way", nil
	}
	s.stopped, s.touched = time.Now(), true
	return s.stopAll(ctx, s.plan.Stop)
}

func startOld(ctx context.Context, s *run) (string, error) {
	if s.stopped.IsZero() {
		return "", nil
	}
	// An instance that was swapped with itself comes back as what it was, although "prepare" is undone only later.
	if _, err := restoreOld(ctx, s); err != nil {
		return "", err
	}
	return s.startAll(ctx, s.plan.Stop)
}

func startNew(ctx context.Context, s *run) (string, error) {
	sections := s.plan.toStart()
	if len(sections) == 0 {
		return "already serves with this definition", nil
	}
	s.touched = true
	detail, err := s.startAll(ctx, sections)
	s.ready = time.Now()
	return detail, err
}

func stopNew(ctx context.Context, s *run) (string, error) {
	return s.stopAll(ctx, s.plan.toStart())
}

func probeNew(ctx context.Context, s *run) (string, error) {
	answer, err := s.proveAll(ctx, s.plan.sections())
	s.answer = answer
	return answer, err
}

func promote(_ context.Context, s *run) (string, error) {
	var enabled []string
	for _, t := range s.plan.New {
		if err := s.Files.Enable(unitgen.UnitName(t.Section.Instance), bootTarget); err != nil {
			return "", err
		}
		enabled = append(enabled, t.Section.Instance)
	}
	for _, name := range s.plan.Displaced {
		if err := s.Files.Disable(unitgen.UnitName(name), bootTarget); err != nil {
			return "", err
		}
	}
	return bootText(enabled, s.plan.Displaced), nil
}

func demote(_ context.Context, s *run) (string, error) {
	for _, name := range s.plan.Displaced {
		if err := s.Files.Enable(unitgen.UnitName(name), bootTarget); err != nil {
			return "", err
		}
	}
	for _, t := range s.plan.New {
		if t.Enabled {
			continue
		}
		if err := s.Files.Disable(unitgen.UnitName(t.Section.Instance), bootTarget); err != nil {
			return "", err
		}
	}
	return "what starts at boot is as it was", nil
}

func bootText(on, off []string) string {
	text := strings.Join(on, ", ") + " starts at boot"
	if len(on) > 1 {
		text = strings.Join(on, ", ") + " start at boot"
	}
	switch len(off) {
	case 0:
		return text
	case 1:
		return text + "; " + off[0] + " no longer does"
	}
	return text + "; " + strings.Join(off, ", ") + " no longer do"
}

// stopAll stops instances and waits until nothing is left of them: the job's end alone does not say so.
func (s *run) stopAll(ctx context.Context, sections []unitgen.Section) (string, error) {
	gone := 0
	var units []string
	for _, sec := range sections {
		unit := unitgen.UnitName(sec.Instance)
		n, err := s.stop(ctx, unit, sec.DrainTimeout)
		if err != nil {
			return "", err
		}
		gone += n
		units = append(units, unit)
	}
	if len(units) == 0 {
		return "", nil
	}
	detail := strings.Join(units, ", ") + " stopped"
	if gone > 0 {
		detail += ", " + processes(gone) + " gone"
	}
	return detail, nil
}

func (s *run) stop(ctx context.Context, unit string, drain time.Duration) (gone int, err error) {
	before, err := s.Systemd.Unit(ctx, unit)
	if err != nil {
		return 0, err
	}
	members, err := s.Cgroups.Members(before.ControlGroup)
	if err != nil {
		return 0, err
	}
	s.Progress.Detail(fmt.Sprintf("stopping %s; open requests have %s", unit, drain))
	stopCtx, cancel := context.WithTimeout(ctx, drain+2*jobMargin)
	defer cancel()
	if err := s.Systemd.Stop(stopCtx, unit); err != nil {
		return 0, err
	}
	return len(members), s.emptied(ctx, unit, before.ControlGroup)
}

// emptied waits until a stopped unit's cgroup has no processes, after a SIGKILL if need be. Nothing signals a cgroup's
// end on both cgroup versions, so this polls.
func (s *run) emptied(ctx context.Context, unit, cgroup string) error {
	ctx, cancel := context.WithTimeout(ctx, emptyTimeout)
	defer cancel()
	for killed := false; ; killed = true {
		left, err := s.Cgroups.Members(cgroup)
		if err != nil || len(left) == 0 {
			return err
		}
		if !killed {
			if err := s.Systemd.Kill(ctx, unit, syscall.SIGKILL); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot end %q: %s left after SIGKILL: %v", unit, processes(len(left)), left)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

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

func (s *run) start(ctx context.Context, unit string, sec unitgen.Section) error {
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
