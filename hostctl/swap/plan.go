// Package swap moves the host from one set of instances to another, so that it always ends in a proven state.
//
// It owns the plan, the steps with what undoes them, their runner, and the record. What it does to the host it does
// through the interfaces declared here; it decides nothing about units' texts and prints nothing.
package swap

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// Fact is what is known of one unit of ours before a swap.
type Fact struct {
	Section unitgen.Section // of the installed text
	Text    []byte          // as installed; nil when only Pending exists
	Pending []byte          // the definition that a swap would install, or nil
	Edited  bool            // changed by hand since it was written
	Enabled bool            // starts at boot
	Newer   bool            // of a running instance that is to serve: Text is not what it started with
	Status  systemd.UnitStatus
}

func (f Fact) unit() string { return unitgen.UnitName(f.Section.Instance) }

// running reports whether the unit runs or will by itself: active, starting, stopping, or waiting for a restart.
func (f Fact) running() bool { return f.Status.Active != "inactive" && f.Status.Active != "failed" }

// Plan says what a swap will do. It is made from facts alone and changes nothing. The record keeps it, so that a swap can
// be finished, or reverted, by a process that has nothing else.
type Plan struct {
	ID string `json:"id"`
	// New are the instances to start, with the text to install where it differs from the present one.
	New []Target `json:"new"`
	// Stop are the running instances that conflict with New, in the order to stop them.
	Stop []unitgen.Section `json:"stop"`
	// Restore are those of Stop that a rollback starts again.
	Restore []unitgen.Section `json:"restore"`
	// Displaced are instances that start at boot now and conflict with New.
	Displaced []string `json:"displaced"`
	// Texts are the units of Restore, as they were installed.
	Texts map[string]string `json:"texts"`
}

// TextBefore returns the unit of an instance of the old side as it was before the swap, or "".
func (p *Plan) TextBefore(instance string) string { return p.Texts[instance] }

// Target is an instance that a swap starts.
type Target struct {
	Section unitgen.Section `json:"section"`           // of the definition to start
	Install string          `json:"install,omitempty"` // text to install first; empty when the installed one is right
	Before  string          `json:"before,omitempty"`  // the installed text; empty when there is none
	Enabled bool            `json:"enabled"`           // already starts at boot
	Serving bool            `json:"serving"`           // already runs with this definition, and is left alone
}

// Summary names both sides: "minimax (port 8000, GPUs 0-7) -> kimi-int4 (port 8000, GPUs 0-7)".
func (p *Plan) Summary() string {
	old := "nothing"
	if len(p.Restore) > 0 {
		old = sides(p.Restore)
	} else if len(p.toStart()) == 0 {
		return sides(p.Starts()) + " already serves"
	}
	return old + " -> " + sides(p.Starts())
}

func instances(sections []unitgen.Section) []string {
	var names []string
	for _, s := range sections {
		names = append(names, s.Instance)
	}
	return names
}

// Sections are the instances of both sides.
func (p *Plan) Sections() []unitgen.Section { return append(p.Starts(), p.Stop...) }

func sides(sections []unitgen.Section) string {
	var parts []string
	for _, s := range sections {
		where := s.Where()
		if gpus := s.GPUText(); gpus != "-" {
			where += ", GPUs " + gpus
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", s.Instance, where))
	}
	return strings.Join(parts, ", ")
}

// Problem is a reason to refuse a swap before anything is touched.
type Problem struct {
	ID    string   `json:"id"` // what was looked at: unit, conflict, or a check that can be skipped
	Text  string   `json:"text"`
	Hints []string `json:"hints,omitempty"` // what to type
}

// RefusedError says why a swap was refused before anything was touched.
type RefusedError struct{ Problems []Problem }

func (e *RefusedError) Error() string {
	var texts []string
	for _, p := range e.Problems {
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "; ")
}

// Hints are what to type about the problems, each once.
func (e *RefusedError) Hints() []string {
	var hints []string
	for _, p := range e.Problems {
		for _, hint := range p.Hints {
			if !slices.Contains(hints, hint) {
				hints = append(hints, hint)
			}
		}
	}
	return hints
}

// NewPlan works out what a swap to the named instances stops, starts and enables. Problems that forbid it are returned
// all at once, with a nil Plan.
func NewPlan(id string, facts []Fact, names []string) (*Plan, []Problem) {
	p := &Plan{ID: id, Texts: map[string]string{}}
	var problems []Problem
	for _, name := range names {
		i := slices.IndexFunc(facts, func(f Fact) bool { return f.Section.Instance == name })
		if i < 0 {
			problems = append(problems, Problem{"unit", fmt.Sprintf("instance %q has no unit", name), []string{"vllmhost apply"}})
			continue
		}
		target, problem := newTarget(facts[i])
		if problem != nil {
			problems = append(problems, *problem)
		}
		for _, other := range p.New {
			if why := unitgen.Conflict(target.Section, other.Section); why != "" {
				problems = append(problems, Problem{"conflict", fmt.Sprintf("%s and %s cannot run together: %s",
					other.Section.Instance, name, why), nil})
			}
		}
		p.New = append(p.New, target)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	var beside []unitgen.Section // what goes on running
	for _, f := range facts {
		named := slices.Contains(names, f.Section.Instance)
		if !named && !p.conflicts(f.Section) {
			if f.running() {
				beside = append(beside, f.Section)
			}
			continue
		}
		if f.running() && !p.serving(f.Section) {
			p.Stop = append(p.Stop, f.Section)
		}
		if f.Enabled && !named {
			p.Displaced = append(p.Displaced, f.Section.Instance)
		}
	}
	p.Restore = restorable(facts, p.Stop)
	for _, f := range facts {
		if slices.ContainsFunc(p.Restore, func(s unitgen.Section) bool { return s.Instance == f.Section.Instance }) {
			p.Texts[f.Section.Instance] = string(f.Text)
		}
	}
	// Each two of them fit together, but not all: which one is to go is for people to say.
	if why := unitgen.Crowd(append(p.Starts(), beside...)); why != "" {
		return nil, []Problem{{"conflict", why, []string{"to keep one of them: vllmhost swap " + strings.Join(names, " ") + " NAME"}}}
	}
	return p, nil
}

// restorable are the instances that a rollback starts again: those that served, then those that loaded, then those that
// wait for a restart, as far as they can run together. One that its guard has not let through yet is not among them, and
// neither is one that somebody is just stopping.
func restorable(facts []Fact, stop []unitgen.Section) []unitgen.Section {
	rank := func(f Fact) int {
		switch {
		case f.Status.Active == "active" || f.Status.Active == "reloading":
			return 0
		case f.Status.Active != "activating" || f.Status.Sub == "start-pre":
			return -1
		case f.Status.Sub == "auto-restart":
			return 2
		}
		return 1
	}
	var all []unitgen.Section
	for want := range 3 {
		for _, f := range facts {
			listed := slices.ContainsFunc(stop, func(s unitgen.Section) bool { return s.Instance == f.Section.Instance })
			fits := !slices.ContainsFunc(all, func(s unitgen.Section) bool { return unitgen.Conflict(s, f.Section) != "" })
			if listed && fits && rank(f) == want {
				all = append(all, f.Section)
			}
		}
	}
	return all
}

func newTarget(f Fact) (Target, *Problem) {
	t := Target{Section: f.Section, Before: string(f.Text), Enabled: f.Enabled}
	if f.Edited {
		return t, &Problem{"unit", fmt.Sprintf("%s was edited by hand since vllmhost wrote it", f.unit()), []string{
			"vllmhost apply --diff", "vllmhost apply --force " + f.Section.Instance}}
	}
	// A pending definition that is installed already is what a swap left that was killed at its end.
	if f.Pending == nil || bytes.Equal(f.Pending, f.Text) {
		t.Serving = f.Status.Active == "active" && !f.Newer
		return t, nil
	}
	s, err := unitgen.ParseSection(f.Pending)
	if err != nil || unitgen.Edited(f.Pending) {
		return t, &Problem{"unit", fmt.Sprintf("the pending definition of %s is damaged", f.unit()), []string{"vllmhost apply"}}
	}
	t.Section, t.Install = s, string(f.Pending)
	return t, nil
}

func (p *Plan) conflicts(s unitgen.Section) bool {
	return slices.ContainsFunc(p.New, func(t Target) bool { return unitgen.Conflict(s, t.Section) != "" }) ||
		unitgen.Crowd(append(p.Starts(), s)) != ""
}

func (p *Plan) serving(s unitgen.Section) bool {
	return slices.ContainsFunc(p.New, func(t Target) bool { return t.Serving && t.Section.Instance == s.Instance })
}

// Starts are the instances that the swap is to have serving.
func (p *Plan) Starts() []unitgen.Section {
	var ss []unitgen.Section
	for _, t := range p.New {
		ss = append(ss, t.Section)
	}
	return ss
}

// toStart are the instances of New that do not serve yet.
func (p *Plan) toStart() []unitgen.Section {
	var ss []unitgen.Section
	for _, t := range p.New {
		if !t.Serving {
			ss = append(ss, t.Section)
		}
	}
	return ss
}
