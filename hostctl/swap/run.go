package swap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// Systemd is what a swap asks of systemd.
type Systemd interface {
	State(ctx context.Context, name string) (systemd.UnitStatus, error)
	Start(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Kill(ctx context.Context, name string, sig syscall.Signal) error
	ResetFailed(ctx context.Context, name string) error
	ReloadIfNeeded(ctx context.Context, names ...string) (bool, error)
	Watch(ctx context.Context, name string) (<-chan systemd.UnitStatus, error)
	// Stopping reports whether the host is going down.
	Stopping(ctx context.Context) (bool, error)
}

// Files is what a swap asks of the directory of unit files.
type Files interface {
	Read(name string) ([]byte, error) // fs.ErrNotExist where there is none
	Write(name string, text []byte) error
	Remove(name string) error
	// Keep puts a unit file aside, so that PutBack can restore it without writing: also on a full disk. Forget drops what was
	// kept. All three are successes where there is nothing to do.
	Keep(name string) error
	PutBack(name string) error
	Forget(name string) error
	Enable(name, target string) error
	Disable(name, target string) error
}

// Pending is what a swap asks of the directory of pending definitions.
type Pending interface{ Remove(name string) error }

// Prover proves that a started instance serves: its own socket, its model, a token. The answer says how, for people.
type Prover interface {
	Prove(ctx context.Context, s unitgen.Section) (answer string, err error)
}

// Member is a process of a unit.
type Member struct {
	PID    int
	Engine bool   // one of vLLM's engine or worker processes, rather than its server
	Text   string // command, state, and where in the kernel it waits, for people
}

// Cgroups lists the processes that are left of a unit.
type Cgroups interface {
	Members(cgroup string) ([]Member, error)
}

// Requests tells how many requests an instance is working on; ok is false when it does not say.
type Requests interface {
	Running(ctx context.Context, s unitgen.Section) (n int, ok bool)
}

// Preflight finds out on paper, while the old side serves, whether the new one can start.
type Preflight interface {
	Check(ctx context.Context, p *Plan) (detail string, problems []Problem, err error)
}

// Resources are what a stopped engine may leave behind, and a new one needs.
type Resources interface {
	// AwaitFree waits until the instances' GPUs and ports are free, as long as ctx allows, and reports meanwhile for what.
	AwaitFree(ctx context.Context, sections []unitgen.Section, report func(string)) (detail string, err error)
	// Clean removes stale shared memory of the instances' users.
	Clean(ctx context.Context, sections []unitgen.Section) (detail string, err error)
}

// Claims keep all others from starting what the swap is about.
type Claims interface {
	// MayStart lets these instances pass their guards from now on, and none else of both sides.
	MayStart(instances ...string) error
}

// Progress is told what a swap does, as it does it. Calls come in order, from one goroutine at a time.
type Progress interface {
	Begin(step string)         // a step begins
	Detail(text string)        // what the current step or undo does or waits for
	Done(text string)          // the current step or undo is done; an undo that had nothing to do does not say so
	Skip(text string)          // the current step has nothing to do
	Fail(text string)          // the current step or undo failed
	Undo(step string)          // undoing a step begins
	Announce(p *Plan)          // before the first step
	Lost(step string, e error) // the record could not be written
}

// Runner carries out plans.
type Runner struct {
	Systemd   Systemd
	Files     Files
	Pending   Pending
	Prover    Prover
	Cgroups   Cgroups
	Requests  Requests
	Preflight Preflight
	Resources Resources
	Claims    Claims
	Progress  Progress
	Record    Journal
}

// Journal keeps the lines of a record. A line is on disk when Write returns without an error.
type Journal interface{ Write(e Entry) error }

// Result is how a swap ended.
type Result struct {
	State    State     `json:"state"`              // Swapped, Refused (nothing changed), RolledBack, RollbackFailed, Stayed
	Step     string    `json:"step,omitempty"`     // the step that failed
	Error    string    `json:"error,omitempty"`    // why it failed
	Locked   bool      `json:"locked,omitempty"`   // refused, because another operation is under way
	Problems []Problem `json:"problems,omitempty"` // of a refusal
	Undo     []string  `json:"undo,omitempty"`     // what could not be undone
	Serves   []string  `json:"serves,omitempty"`   // the instances that were proven to serve at the end
	Answer   string    `json:"answer,omitempty"`   // how they were
	Elapsed  float64   `json:"elapsed_seconds"`    // since it began
	Silent   float64   `json:"silent_seconds"`     // how long nothing answered, from the stop to the proof
	Resumed  int       `json:"resumed,omitempty"`  // how often it was taken up again
}

// errCancelled is why a step fails when the swap's context ends.
var errCancelled = errors.New("cancelled")

// run is one swap under way.
type run struct {
	*Runner
	position
	stay    bool
	crashed bool  // the host went down since the swap began
	lost    bool  // the record could not be written, which has been told
	err     error // why it failed, if that was in this process
	answer  string
}

// Limits on how often a swap is taken up again. What kills its process again and again at the same place does so for a
// reason.
const (
	maxForward = 4  // times forward, then back
	maxResumed = 12 // times in all, then it is over
)

// Run carries out a plan step by step, each recorded before and after. When a step fails, or ctx ends, what was done is
// undone in reverse, beginning with the failing step itself: every undo restores what was before its step, however far
// the step came. Then the old side is proven again. With stay, all is left as the failing step left it.
//
// When a step fails because the host is going down, the Result has no State, the record stays open, and the next boot
// goes on.
func (r *Runner) Run(ctx context.Context, p *Plan, stay bool) Result {
	s := &run{Runner: r, stay: stay}
	s.began = time.Now()
	if err := s.write(Entry{Step: "plan", State: Done, Plan: p, Detail: p.Summary()}); err != nil {
		return s.end(Result{State: Refused, Step: "plan", Error: err.Error()})
	}
	r.Progress.Announce(p)
	return s.forward(ctx)
}

// Resume goes on with a swap whose process was killed, from what its record says. A swap that only its process was lost
// of goes on where it was. After a crash of the host it goes back, unless it had begun to change what starts at boot:
// then everything else was proven, and it goes forward. [Repair] has made the host start the same side.
func (r *Runner) Resume(ctx context.Context, entries []Entry, stay bool) Result {
	s := &run{Runner: r, stay: stay, position: positionOf(entries)}
	s.crashed = s.boot != BootID()
	e := Entry{State: Resumed, Boot: BootID(), Step: s.at()}
	switch {
	case s.back():
	case s.plan == nil:
		e.Error = "killed before anything was touched"
	case s.crashed && !s.committed():
		e.Error = fmt.Sprintf("the host went down at step %q", s.at())
	case s.resumed >= maxForward:
		e.Error = fmt.Sprintf("killed %d times; at step %q the last time", s.resumed+1, s.at())
	case s.crashed:
		// What was started before the crash is gone: it starts at boot, and is proven anew.
		s.done = slices.DeleteFunc(s.done, func(step string) bool { return step == "start" || step == "probe" || step == "promote" })
	}
	if s.resumed >= maxResumed {
		return s.end(Result{State: RollbackFailed, Step: s.at(), Error: fmt.Sprintf("killed %d times", s.resumed+1)})
	}
	s.note(e)
	if s.plan == nil {
		return s.end(Result{State: Refused, Step: "plan", Error: e.Error})
	}
	r.Progress.Announce(s.plan)
	if s.back() {
		return s.rollBack(ctx)
	}
	return s.forward(ctx)
}

// forward carries out the steps that are not done yet.
func (s *run) forward(ctx context.Context) Result {
	for _, step := range Steps() {
		if slices.Contains(s.done, step.Name) {
			continue
		}
		err := s.do(ctx, step)
		if err == nil {
			continue
		}
		if errors.Is(err, errHalting) {
			return Result{}
		}
		s.err = err
		if s.stay {
			return s.end(Result{State: Stayed, Step: step.Name, Error: err.Error()})
		}
		return s.rollBack(ctx)
	}
	res := Result{State: Swapped, Answer: s.answer, Serves: instances(s.plan.Starts())}
	if !s.stopped.IsZero() {
		res.Silent = max(0, s.ready.Sub(s.stopped).Seconds())
	}
	return s.end(res)
}

func (s *run) do(ctx context.Context, step Step) error {
	err := s.write(Entry{Step: step.Name, State: Doing})
	s.Progress.Begin(step.Name)
	var detail string
	if err == nil {
		detail, err = step.Do(ctx, s)
	}
	if ctx.Err() != nil {
		err = errCancelled
	}
	if err == nil || errors.Is(err, errNothing) {
		skipped := err
		if skipped != nil {
			detail = skipped.Error()
		}
		if err = s.write(Entry{Step: step.Name, State: Done, Detail: detail}); err == nil && skipped != nil {
			s.Progress.Skip(detail)
		} else if err == nil {
			s.Progress.Done(detail)
		}
	}
	if err != nil && s.halting(ctx) {
		return errHalting
	}
	if err != nil {
		s.Progress.Fail(brief(err))
		s.note(Entry{Step: step.Name, State: Failed, Detail: brief(err), Error: err.Error()})
	}
	return err
}

// errHalting is why a step ends when the host is going down: that is no failure of its.
var errHalting = errors.New("the host is going down")

// lookTimeout is for a look at the state of the host that must not hold anything up.
const lookTimeout = 5 * time.Second

func (s *run) halting(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	stopping, err := s.Systemd.Stopping(ctx)
	return err == nil && stopping
}

// brief is an error for the one line of a step.
func brief(err error) string {
	var refused *RefusedError
	if errors.As(err, &refused) && len(refused.Problems) > 1 {
		return fmt.Sprintf("%d problems found", len(refused.Problems))
	}
	return err.Error()
}

// rollBack undoes, in reverse, the step that failed and all before it. It goes on after a failing undo: what can be
// restored is.
func (s *run) rollBack(ctx context.Context) Result {
	ctx = context.WithoutCancel(ctx) // the way back has its own deadlines, step by step
	res := Result{State: RolledBack, Step: s.failed, Error: s.cause}
	var refused *RefusedError
	if errors.As(s.err, &refused) {
		res.Problems = refused.Problems
	}
	steps := Steps()
	last := slices.IndexFunc(steps, func(step Step) bool { return step.Name == s.failed })
	if s.crashed { // nothing runs as it was left: all of the old side is made sure of, and proven
		last, s.touched, s.undone = len(steps)-1, true, nil
	}
	for i := last; i >= 0; i-- {
		step := steps[i]
		if step.Undo == nil || slices.Contains(s.undone, step.Name) {
			continue
		}
		err := s.undo(ctx, step)
		if errors.Is(err, errHalting) {
			return Result{}
		}
		if err != nil {
			res.Undo = append(res.Undo, err.Error())
		}
	}
	if !s.touched {
		res.State = Refused
	} else if len(res.Undo) == 0 {
		answer, err := s.proveOld(ctx)
		if err != nil && s.halting(ctx) {
			return Result{}
		}
		res.Answer, res.Serves = answer, instances(s.plan.Restore)
		if err != nil {
			res.Undo, res.Serves = append(res.Undo, err.Error()), nil
		}
	}
	if len(res.Undo) > 0 {
		res.State = RollbackFailed
	}
	return s.end(res)
}

func (s *run) undo(ctx context.Context, step Step) error {
	s.note(Entry{Step: step.Name, State: Undoing})
	s.Progress.Undo(step.Name)
	detail, err := step.Undo(ctx, s)
	if err != nil && s.halting(ctx) {
		return errHalting
	}
	if err != nil {
		s.Progress.Fail(err.Error())
		s.note(Entry{Step: step.Name, State: Failed, Error: err.Error()})
		return err
	}
	if detail != "" {
		s.Progress.Done(detail)
	}
	s.note(Entry{Step: step.Name, State: Undone, Detail: detail})
	return nil
}

// proveOld proves what the rollback started again.
func (s *run) proveOld(ctx context.Context) (string, error) {
	if len(s.plan.Restore) == 0 {
		return "", nil
	}
	s.note(Entry{Step: "probe", State: Undoing})
	s.Progress.Undo("probe")
	answer, err := s.proveAll(ctx, s.plan.Restore)
	if err != nil {
		s.Progress.Fail(err.Error())
		s.note(Entry{Step: "probe", State: Failed, Error: err.Error()})
		return "", err
	}
	s.Progress.Done(answer)
	s.note(Entry{Step: "probe", State: Undone, Detail: answer})
	return answer, nil
}

func (s *run) end(res Result) Result {
	if s.plan != nil {
		s.tidy(res.State)
	}
	res.Elapsed, res.Resumed = max(0, time.Since(s.began).Seconds()), s.resumed
	s.note(Entry{State: res.State, Step: res.Step, Error: res.Error, Result: &res})
	return res
}

// write appends to the record, and to what is known of the swap.
func (s *run) write(e Entry) error {
	e.Time = time.Now().UTC()
	err := s.Record.Write(e)
	s.position.read(e)
	return err
}

// note writes to the record where a failure must not stop the way back; it is told once.
func (s *run) note(e Entry) {
	if err := s.write(e); err != nil && !s.lost {
		s.lost = true
		s.Progress.Lost(e.Step, err)
	}
}
