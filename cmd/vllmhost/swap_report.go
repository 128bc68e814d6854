package main

import (
	"errors"
	"fmt"
	"strings"

	"vllmhost/cmd/vllmhost/term"
	"vllmhost/hostctl/swap"
	"vllmhost/unitgen"
)

func printPlan(ui *term.Printer, plan *swap.Plan) error {
	if ui.JSONOnly {
		return ui.JSON(planReport(plan))
	}
	ui.Line("Swap: %s", plan.Summary())
	for i, step := range swap.Steps() {
		undo := "can be undone"
		if step.Undo == nil {
			undo = "changes nothing"
		}
		ui.Line("%3d. %-9s %s (%s)", i+1, step.Name, step.Summary, undo)
	}
	for _, s := range plan.Stop {
		ui.Line("Would stop %s; its open requests have %s to end.", s.Instance, s.DrainTimeout)
	}
	for _, name := range plan.Displaced {
		ui.Line("%s would no longer start at boot.", name)
	}
	ui.Line("Nothing was touched.")
	return nil
}

// swapReport is the JSON of swap.
type swapReport struct {
	Schema   string         `json:"schema"`
	ID       string         `json:"id"`
	State    string         `json:"state"` // planned, swapped, refused, rolled back, rollback failed, failed
	Changed  bool           `json:"changed"`
	Stop     []string       `json:"stop"`
	Start    []string       `json:"start"`
	Unboot   []string       `json:"no_longer_at_boot"`
	Step     string         `json:"failed_step,omitempty"`
	Error    string         `json:"error,omitempty"`
	Problems []swap.Problem `json:"problems,omitempty"` // of a refusal, before anything was touched
	Undo     []string       `json:"undo_errors,omitempty"`
	Answer   string         `json:"answer,omitempty"`
	Elapsed  float64        `json:"elapsed_seconds"`
	Silent   float64        `json:"silent_seconds"`
	ExitCode int            `json:"exit_code"`
}

func planReport(plan *swap.Plan) swapReport {
	r := swapReport{Schema: "vllmhost/swap/v1", ID: plan.ID, State: "planned", Stop: []string{}, Start: []string{},
		Unboot: append([]string{}, plan.Displaced...)}
	for _, s := range plan.Stop {
		r.Stop = append(r.Stop, s.Instance)
	}
	for _, t := range plan.New {
		r.Start = append(r.Start, t.Section.Instance)
	}
	return r
}

func printResult(ui *term.Printer, plan *swap.Plan, res swap.Result) error {
	outcome := map[swap.State]exit{
		swap.Swapped: exitDone, swap.Refused: exitFailed, swap.RolledBack: exitRolledBack,
		swap.RollbackFailed: exitRollbackFailed, swap.Failed: exitRollbackFailed,
	}[res.State]
	if ui.JSONOnly {
		r := planReport(plan)
		r.State, r.Step, r.Answer = string(res.State), res.Step, res.Answer
		r.Changed = res.State != swap.Refused
		r.Elapsed, r.Silent = res.Elapsed.Seconds(), res.Silent.Seconds()
		r.ExitCode, _ = exitTable(outcome)
		if res.Err != nil {
			r.Error = res.Err.Error()
		}
		var refused *swap.RefusedError
		if errors.As(res.Err, &refused) {
			r.Problems = refused.Problems
		}
		for _, err := range res.UndoErrs {
			r.Undo = append(r.Undo, err.Error())
		}
		if err := ui.JSON(r); err != nil {
			return err
		}
		return end(outcome)
	}
	if res.State == swap.Swapped {
		silent := ""
		if res.Silent > 0 {
			silent = fmt.Sprintf(" Nothing answered on %s for %s.", plan.New[0].Section.Where(), term.Duration(res.Silent))
		}
		ui.Line("Swapped in %s.%s", term.Duration(res.Elapsed), silent)
		return nil
	}
	return swapFailed(ui, plan, res, outcome)
}

// swapFailed says in one paragraph how things are after a failure, and ends with why.
func swapFailed(ui *term.Printer, plan *swap.Plan, res swap.Result, outcome exit) error {
	served := "nothing served before, and nothing does now"
	if len(plan.Restore) > 0 {
		var again []string
		for _, s := range plan.Restore {
			again = append(again, fmt.Sprintf("%s serves again on %s", s.Instance, s.Where()))
		}
		served = strings.Join(again, ", ")
	}
	var hints []string
	for _, t := range plan.New {
		hints = append(hints, "journalctl -u "+unitgen.UnitName(t.Section.Instance)+" -n 50")
	}
	var refused *swap.RefusedError
	if errors.As(res.Err, &refused) {
		return swapRefused(ui, plan, refused)
	}
	switch res.State {
	case swap.Refused:
		ui.Line("Nothing that runs was touched.")
	case swap.RolledBack:
		ui.Line("Rolled back in %s: %s.", term.Duration(res.Elapsed), served)
	case swap.Failed:
		ui.Line("Stopped at step %q, as --on-failure=stay says. Nothing was undone.", res.Step)
		for _, s := range plan.Restore {
			hints = append(hints, "to go back: vllmhost swap "+s.Instance)
		}
	case swap.RollbackFailed:
		ui.Line("The rollback failed. Act now:")
		for _, err := range res.UndoErrs {
			ui.Line("  %v", err)
		}
		for _, s := range plan.Restore {
			hints = append(hints, "systemctl start "+unitgen.UnitName(s.Instance))
		}
	}
	return fail(outcome, fmt.Errorf("cannot swap to %q: %v", names(plan), res.Err), hints...)
}

// swapRefused lists what stands in the way of a swap that touched nothing.
func swapRefused(ui *term.Printer, plan *swap.Plan, refused *swap.RefusedError) error {
	err := fmt.Errorf("cannot swap to %q: %v", names(plan), refused)
	if n := len(refused.Problems); n > 1 {
		err = fmt.Errorf("cannot swap to %q: %d problems found before anything was touched", names(plan), n)
		for _, p := range refused.Problems {
			ui.Line("       %-10s %s", p.ID, p.Text)
		}
	}
	serves := "Nothing was touched, and nothing served before."
	if len(plan.Restore) > 0 {
		var still []string
		for _, s := range plan.Restore {
			still = append(still, fmt.Sprintf("%s still serves on %s", s.Instance, s.Where()))
		}
		serves = "Nothing was touched: " + strings.Join(still, ", ") + "."
	}
	ui.Line("%s", serves)
	return fail(exitFailed, err, refused.Hints()...)
}

func names(plan *swap.Plan) string {
	var all []string
	for _, t := range plan.New {
		all = append(all, t.Section.Instance)
	}
	return strings.Join(all, ", ")
}
