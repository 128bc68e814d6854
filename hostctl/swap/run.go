package swap

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// Systemd is what a swap asks of systemd.
type Systemd interface {
	Unit(ctx context.Context, name string) (systemd.UnitStatus, error)
	Start(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Kill(ctx context.Context, name string, sig syscall.Signal) error
	ResetFailed(ctx context.Context, name string) error
	ReloadIfNeeded(ctx context.Context, names ...string) (bool, error)
	Watch(ctx context.Context, name string) (<-chan systemd.UnitStatus, error)
}

// Files is what a swap asks of the directory of unit files.
type Files interface {
	Write(name string, text []byte) error
	Remove(name string) error
	Enable(name, target string) error
	Disable(name, target string) error
}

// Pending is what a swap asks of the directory of pending definitions.
type Pending interface {
	Write(name string, text []byte) error
	Remove(name string) error
}

// Prover proves that a started instance serves: its own socket, its model, a token. The answer says how, for people.
type Prover interface {
	Prove(ctx context.Context, s unitgen.Section) (answer string, err error)
}

// Cgroups lists the processes that are left of a unit.
type Cgroups interface {
	Members(cgroup string) ([]int, error)
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
	Preflight Preflight
	Resources Resources
	Claims    Claims
	Progress  Progress
	Record    *Record
	// StayOnFailure leaves the host as the failing step left it.
	StayOnFailure bool
}

// Result is how a swap ended.
type Result struct {
	State    State         `json:"state"`            // Swapped, Refused (nothing changed), RolledBack, RollbackFailed, Failed (stayed)
	Step     string        `json:"step,omitempty"`   // the step that failed
	Err      error         `json:"-"`                // why it failed
	UndoErrs []error       `json:"-"`                // what could not be undone
	Answer   string        `json:"answer,omitempty"` // how what serves now was proven
	Elapsed  time.Duration `json:"elapsed_ns"`
	Silent   time.Duration `json:"silent_ns"` // how long nothing answered, from the stop to the proof
}

// errCancelled is why a step fails when the swap's context ends.
var errCancelled = errors.New("cancelled")

// run is one swap under way.
type run struct {
	*Runner
	plan     *Plan
	began    time.Time
	stopped  time.Time // when the first old instance was told to stop; zero before
	ready    time.Time // when the new instances were ready
	restored bool      // "prepare" is undone
	touched  bool      // something running was stopped, or something was started
	answer   string
}

// Run carries out a plan step by step, each recorded before and after. When a step fails, or ctx ends, what was done is
// undone in reverse, beginning with the failing step itself: every undo restores what was before its step, however far
// the step came. Then the old side is proven again.
func (r *Runner) Run(ctx context.Context, p *Plan) Result {
	s := &run{Runner: r, plan: p, began: time.Now()}
	r.Progress.Announce(p)
	var done []Step
	for _, step := range Steps() {
		err := s.do(ctx, step)
		if err == nil {
			done = append(done, step)
			continue
		}
		if r.StayOnFailure {
			return s.end(Result{State: Failed, Step: step.Name, Err: err})
		}
		return s.rollBack(ctx, append(done, step), err)
	}
	res := Result{State: Swapped, Answer: s.answer}
	if !s.stopped.IsZero() {
		res.Silent = s.ready.Sub(s.stopped)
	}
	return s.end(res)
}

func (s *run) do(ctx context.Context, step Step) error {
	s.Progress.Begin(step.Name)
	if err := s.Record.Write(Entry{Step: step.Name, State: Doing}); err != nil {
		s.Progress.Fail(err.Error())
		return err
	}
	detail, err := step.Do(ctx, s)
	if ctx.Err() != nil {
		err = errCancelled
	}
	if errors.Is(err, errNothing) {
		s.Progress.Skip(err.Error())
		return s.Record.Write(Entry{Step: step.Name, State: Done, Detail: err.Error()})
	}
	if err != nil {
		s.Progress.Fail(brief(err))
		s.note(Entry{Step: step.Name, State: Failed, Error: err.Error()})
		return err
	}
	s.Progress.Done(detail)
	return s.Record.Write(Entry{Step: step.Name, State: Done, Detail: detail})
}

// brief is an error for the one line of a step.
func brief(err error) string {
	var refused *RefusedError
	if errors.As(err, &refused) && len(refused.Problems) > 1 {
		return fmt.Sprintf("%d problems found", len(refused.Problems))
	}
	return err.Error()
}

// rollBack undoes steps in reverse. It goes on after a failing undo: what can be restored is.
func (s *run) rollBack(ctx context.Context, steps []Step, cause error) Result {
	ctx = context.WithoutCancel(ctx) // the way back has its own deadlines, step by step
	res := Result{State: RolledBack, Step: steps[len(steps)-1].Name, Err: cause}
	for i := len(steps) - 1; i >= 0; i-- {
		step := steps[i]
		if step.Undo == nil {
			continue
		}
		if err := s.undo(ctx, step); err != nil {
			res.UndoErrs = append(res.UndoErrs, err)
		}
	}
	if !s.touched {
		res.State = Refused
	} else if len(res.UndoErrs) == 0 {
		answer, err := s.proveOld(ctx)
		res.Answer = answer
		if err != nil {
			res.UndoErrs = append(res.UndoErrs, err)
		}
	}
	if len(res.UndoErrs) > 0 {
		res.State = RollbackFailed
	}
	return s.end(res)
}

func (s *run) undo(ctx context.Context, step Step) error {
	s.Progress.Undo(step.Name)
	s.note(Entry{Step: step.Name, State: Undoing})
	detail, err := step.Undo(ctx, s)
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
	s.Progress.Undo("probe")
	answer, err := s.proveAll(ctx, s.plan.Restore)
	if err != nil {
		s.Progress.Fail(err.Error())
		return "", err
	}
	s.Progress.Done(answer)
	return answer, nil
}

func (s *run) end(res Result) Result {
	res.Elapsed = time.Since(s.began)
	e := Entry{State: res.State, Detail: res.Answer}
	if res.Err != nil {
		e.Error = res.Err.Error()
	}
	s.note(e)
	return res
}

// note writes to the record where a failure must not stop the way back; it is told once.
func (s *run) note(e Entry) {
	lost := s.Record.err != nil
	if err := s.Record.Write(e); err != nil && !lost {
		s.Progress.Lost(e.Step, err)
	}
}

// processes counts them, for people.
func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
