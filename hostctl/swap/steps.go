package swap

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"vllmhost/unitgen"
)

// Repair makes the unit files and what starts at boot those of one side of an interrupted swap. It starts and stops
// nothing, so that it can be done before anything starts.
func (r *Runner) Repair(ctx context.Context, p *Plan, forward bool) error {
	s := &run{Runner: r, position: position{plan: p}}
	steps := []func(context.Context, *run) (string, error){demote, restoreOld}
	if forward {
		steps = []func(context.Context, *run) (string, error){installNew, promote}
	}
	for _, step := range steps {
		if _, err := step(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// Step is one part of a swap, with what undoes it beside it. Do and Undo are idempotent; both return a few words on
// what they found or did.
type Step struct {
	Name    string
	Summary string // for a dry run
	Do      func(ctx context.Context, s *run) (detail string, err error)
	// Undo restores what was before Do, however far Do came, and says nothing when there was nothing to restore. Nil when
	// Do changes nothing, or nothing that can be restored.
	Undo    func(ctx context.Context, s *run) (detail string, err error)
	undoes  string // what Undo does, for a dry run
	lasting bool   // Do changes something that cannot be restored
}

// Undoes says in a few words what undoes the step.
func (s Step) Undoes() string {
	switch {
	case s.Undo != nil:
		return s.undoes
	case s.lasting:
		return "cannot be undone"
	}
	return "changes nothing"
}

// Steps are all steps of a swap, in order.
func Steps() []Step {
	return []Step{
		{Name: "preflight", Summary: "check what can be checked while the old side serves", Do: preflight},
		{Name: "prepare", Summary: "install the new definition", Do: installNew, Undo: restoreOld, undoes: "the old definition"},
		{Name: "stop", Summary: "stop what conflicts", Do: stopOld, Undo: startOld, undoes: "starting it again"},
		{Name: "release", Summary: "wait until its GPUs and ports are free", Do: release},
		{Name: "clean", Summary: "remove stale shared memory of ours", Do: clean, lasting: true},
		{Name: "start", Summary: "start and wait until ready", Do: startNew, Undo: stopNew, undoes: "stopping it"},
		{Name: "probe", Summary: "prove that it serves", Do: probeNew},
		{Name: "promote", Summary: "start it at boot instead", Do: promote, Undo: demote, undoes: "what started at boot before"},
	}
}

// bootTarget is whose .wants links make an instance start at boot. The link is the commit point of a swap.
const bootTarget = "multi-user.target"

// Limits of the steps that systemd does not limit. GPU memory is back half a second after its processes are gone; a
// driver that tears down a large address space may take much longer.
const (
	preflightTimeout = 5 * time.Minute
	releaseTimeout   = 2 * time.Minute
)

// errNothing is why a step that has nothing to do is left out.
var errNothing = errors.New("nothing to do")

// NothingToDo reports whether a step was left out, by what its record says.
func NothingToDo(detail string) bool { return detail == errNothing.Error() }

// preflight refuses a swap that cannot work, before anything is touched.
func preflight(ctx context.Context, s *run) (string, error) {
	if len(s.plan.toStart()) == 0 {
		return "already serves with this definition", nil
	}
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	detail, problems, err := s.Preflight.Check(ctx, s.plan)
	if err == nil && len(problems) > 0 {
		err = &RefusedError{problems}
	}
	return detail, err
}

// installNew writes the new texts. The old ones are put aside for the way back, which must not need room on the disk;
// the pending definitions stay until the swap is over.
func installNew(ctx context.Context, s *run) (string, error) {
	var written []string
	for _, t := range s.plan.New {
		if t.Install == "" {
			continue
		}
		unit := unitgen.UnitName(t.Section.Instance)
		written = append(written, unit)
		have, err := s.text(unit)
		if err != nil {
			return "", err
		}
		if have == t.Install {
			continue // by this swap, before it was interrupted
		}
		if err := s.Files.Keep(unit); err != nil {
			return "", err
		}
		if err := s.Files.Write(unit, []byte(t.Install)); err != nil {
			return "", err
		}
	}
	if len(written) == 0 {
		return "the definition is in place", nil
	}
	reloaded, err := s.Systemd.ReloadIfNeeded(ctx, written...)
	if err != nil {
		return "", err
	}
	detail := strings.Join(written, ", ") + " written"
	if reloaded {
		detail += ", systemd reloaded"
	}
	return detail, nil
}

func restoreOld(ctx context.Context, s *run) (string, error) {
	var units, restored []string
	for _, t := range s.plan.New {
		if t.Install == "" {
			continue
		}
		unit := unitgen.UnitName(t.Section.Instance)
		changed, err := s.restore(unit, t.Before)
		if err != nil {
			return "", err
		}
		units = append(units, unit)
		if changed {
			restored = append(restored, unit)
		}
	}
	if len(units) == 0 {
		return "", nil
	}
	// Also of what is as it was: whoever restored it may have been killed before systemd read it.
	reloaded, err := s.Systemd.ReloadIfNeeded(ctx, units...)
	switch {
	case err != nil:
		return "", err
	case len(restored) > 0:
		return strings.Join(restored, ", ") + " restored", nil
	case reloaded:
		return "systemd reloaded", nil
	}
	return "", nil
}

// restore makes a unit's text what it was: from what was kept, or else from the record.
func (s *run) restore(unit, before string) (changed bool, err error) {
	have, err := s.text(unit)
	if err != nil || have == before {
		return false, err
	}
	if before == "" {
		return true, s.Files.Remove(unit)
	}
	if err := s.Files.PutBack(unit); err != nil {
		return true, err
	}
	if have, err = s.text(unit); err != nil || have == before {
		return true, err
	}
	return true, s.Files.Write(unit, []byte(before))
}

// text is that of a unit file, or "" where there is none.
func (s *run) text(unit string) (string, error) {
	text, err := s.Files.Read(unit)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// tidy removes what a swap needs only while it goes on. What it leaves does no harm: a pending definition that is
// installed counts as none.
func (s *run) tidy(outcome State) {
	for _, t := range s.plan.New {
		if t.Install == "" {
			continue
		}
		unit := unitgen.UnitName(t.Section.Instance)
		_ = s.Files.Forget(unit)
		if outcome == Swapped || outcome == Stayed {
			_ = s.Pending.Remove(unit)
		}
	}
}

func stopOld(ctx context.Context, s *run) (string, error) {
	if len(s.plan.Stop) == 0 {
		return "nothing runs that is in the way", nil
	}
	return s.stopAll(ctx, s.plan.Stop)
}

// release waits for what a stopped engine's kernel side still has: GPU memory comes back after the process is gone.
func release(ctx context.Context, s *run) (string, error) {
	sections := s.plan.toStart()
	if len(sections) == 0 {
		return "", errNothing
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	return s.Resources.AwaitFree(ctx, sections, s.Progress.Detail)
}

// clean cannot be undone; what it removes is proven to be nobody's any more.
func clean(ctx context.Context, s *run) (string, error) {
	sections := s.plan.toStart()
	if len(sections) == 0 {
		return "", errNothing
	}
	return s.Resources.Clean(ctx, append(sections, s.plan.Stop...))
}

func startOld(ctx context.Context, s *run) (string, error) {
	if s.stopped.IsZero() && !s.crashed {
		return "", nil
	}
	// An instance that was swapped with itself comes back as what it was, although "prepare" is undone only later.
	if _, err := restoreOld(ctx, s); err != nil {
		return "", err
	}
	if err := s.Claims.MayStart(instances(s.plan.Restore)...); err != nil {
		return "", err
	}
	return s.startAll(ctx, s.plan.Restore)
}

func startNew(ctx context.Context, s *run) (string, error) {
	sections := s.plan.toStart()
	if len(sections) == 0 {
		return "already serves with this definition", nil
	}
	if err := s.Claims.MayStart(instances(sections)...); err != nil {
		return "", err
	}
	return s.startAll(ctx, sections)
}

func stopNew(ctx context.Context, s *run) (string, error) {
	var may []string
	if s.crashed { // the boot is just starting the old side
		may = instances(s.plan.Restore)
	}
	if err := s.Claims.MayStart(may...); err != nil {
		return "", err
	}
	return s.stopAll(ctx, s.plan.toStart())
}

func probeNew(ctx context.Context, s *run) (string, error) {
	answer, err := s.proveAll(ctx, s.plan.Starts())
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
