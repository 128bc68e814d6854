package swap

import (
	"slices"
	"strings"
	"time"
)

// position is how far a swap is, as its record tells. What an interrupted swap does next follows from it alone.
type position struct {
	plan    *Plan
	doing   string    // the step that was begun and did not end; empty between steps
	done    []string  // steps that are done
	failed  string    // the step that failed: the swap is on its way back
	cause   string    // and why
	undone  []string  // steps that are undone
	stopped time.Time // when the first old instance was told to stop; zero before
	ready   time.Time // when the new ones were ready
	touched bool      // something running was stopped, or something was started
	resumed int       // how often the swap was taken up again
	boot    string    // in which boot it was last heard of
	result  *Result   // not nil: it is over
	state   State     // of the last line
	began   time.Time
}

// read brings a position up to date with the next line of the record.
func (p *position) read(e Entry) {
	p.state = e.State
	if e.Boot != "" {
		p.boot = e.Boot
	}
	switch e.State {
	case Begun:
		p.began = e.Time
	case Resumed:
		p.resumed++
		if e.Error != "" { // it was decided then to go back
			p.failed, p.cause, p.doing = e.Step, e.Error, ""
		}
	case Doing:
		p.doing = e.Step
		switch {
		case e.Step == "stop" && len(p.plan.Stop) > 0:
			p.touched = true
			if p.stopped.IsZero() {
				p.stopped = e.Time
			}
		case e.Step == "start" && len(p.plan.toStart()) > 0:
			p.touched = true
		}
	case Done:
		p.doing, p.done = "", append(p.done, e.Step)
		switch e.Step {
		case "plan":
			p.plan = e.Plan
		case "start":
			p.ready = e.Time
		}
	case Failed:
		if p.failed == "" {
			p.failed, p.cause, p.doing = e.Step, e.Error, ""
		}
	case Undone:
		p.undone = append(p.undone, e.Step)
	default:
		if e.State.Closed() {
			p.result = e.Result
		}
	}
}

// positionOf reads a record.
func positionOf(entries []Entry) position {
	var p position
	for _, e := range entries {
		p.read(e)
	}
	return p
}

// back reports whether the swap is on its way back.
func (p position) back() bool { return p.failed != "" }

// at is the step that the swap was at.
func (p position) at() string {
	if p.doing != "" {
		return p.doing
	}
	for _, step := range Steps() {
		if !slices.Contains(p.done, step.Name) {
			return step.Name
		}
	}
	return "end"
}

// committed reports whether the swap is bound to go forward, whatever happens: what starts at boot was about to change,
// after everything else had been proven.
func (p position) committed() bool {
	return !p.back() && (p.doing == "promote" || slices.Contains(p.done, "promote"))
}

// Open is what a record tells about an operation that did not end.
type Open struct {
	ID      string
	Op      string
	Plan    *Plan // nil before there was one: then nothing was touched
	Forward bool  // bound to go forward: its new side is what starts at boot
	Back    bool  // on its way back
	Step    string
	Boot    string // the last boot in which it was taken up
	Request Request
	Resumed int
	Began   time.Time
}

// OpenOf says how far an operation is; ok is false when it is over.
func OpenOf(entries []Entry) (o Open, ok bool) {
	p := positionOf(entries)
	o = Open{ID: entries[0].ID, Op: entries[0].Op, Plan: p.plan, Forward: p.committed(), Back: p.back(), Step: p.at(), Boot: p.boot,
		Resumed: p.resumed, Began: p.began}
	if entries[0].Request != nil {
		o.Request = *entries[0].Request
	}
	return o, !p.state.Closed()
}

// Summary says what the operation is about: both sides, once there is a plan.
func (o Open) Summary() string {
	switch {
	case o.Plan != nil:
		return o.Plan.Summary()
	case o.Request.Back != "":
		return "back from " + o.Request.Back
	}
	return "-> " + strings.Join(o.Request.Names, ", ")
}
