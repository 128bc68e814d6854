package main

import (
	"cmp"
	"time"

	"vllmhost/cmd/vllmhost/term"
	"vllmhost/hostctl"
	"vllmhost/hostctl/swap"
)

// operationView shows an operation that is followed: its steps, as its record has them.
type operationView struct {
	ui    *term.Printer
	host  *hostctl.Host
	id    string
	steps *term.Steps
	step  string // the one that is shown as running
	back  bool   // on the way back
}

func (v *operationView) event(e hostctl.Event) {
	if e.Entry != nil {
		v.entry(*e.Entry)
	} else if v.steps != nil {
		v.steps.Detail(e.Detail)
	}
}

func (v *operationView) entry(e swap.Entry) {
	switch {
	case e.Plan != nil:
		v.announce(e.Plan)
	case v.steps == nil:
		// Before there is a plan nothing is shown: the outcome says it all.
	case e.State == swap.Resumed:
		v.back = v.back || e.Error != ""
		v.steps.Detail("taken up again after an interruption")
		if e.Error != "" {
			v.begin(e.Step, e.Time, v.steps.Start)
			v.fail(e)
		}
	case e.State == swap.Doing:
		v.begin(e.Step, e.Time, v.steps.Start)
	case e.State == swap.Undoing:
		v.begin(e.Step, e.Time, v.steps.Undo)
	case e.State == swap.Done && swap.NothingToDo(e.Detail):
		v.steps.Skip(e.Detail, e.Time)
	case e.State == swap.Done, e.State == swap.Undone && e.Detail != "":
		v.steps.Done(e.Detail, e.Time)
	case e.State == swap.Failed:
		v.fail(e)
	}
}

// begin shows a step as running. One that was interrupted and is done again keeps its line.
func (v *operationView) begin(step string, at time.Time, show func(string, time.Time)) {
	if v.step != step {
		show(step, at)
	}
	v.step = step
}

func (v *operationView) fail(e swap.Entry) {
	v.step = ""
	v.steps.Fail(cmp.Or(e.Detail, e.Error), e.Time)
}

func (v *operationView) announce(plan *swap.Plan) {
	v.ui.Line("Swap %s: %s", v.id, plan.Summary())
	if last, err := v.host.LastTimes(plan); err == nil && last != nil {
		v.ui.Line("%s", lastTime(plan, last))
	}
	v.ui.Line("")
	v.steps = v.ui.Steps("Ctrl-C leaves it running. To watch again: vllmhost swap --attach   To make it go back: vllmhost swap --cancel")
}

func (v *operationView) close() {
	if v.steps != nil {
		v.steps.Close()
	}
}
