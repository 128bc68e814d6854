package main

import (
	"fmt"
	"strings"
	"time"

	"vllmhost/cmd/vllmhost/term"
	"vllmhost/hostctl"
	"vllmhost/hostctl/swap"
	"vllmhost/unitgen"
)

// printPlan prints what a swap would do, numbered, with what cannot be undone, and how long it took the last time.
func printPlan(ui *term.Printer, plan *swap.Plan, last *hostctl.Operation) error {
	if ui.JSONOnly {
		return ui.JSON(planReport(plan))
	}
	ui.Line("Swap: %s", plan.Summary())
	took := map[string]string{}
	if last != nil {
		ui.Line("%s", lastTime(plan, last))
		for _, step := range last.Steps() {
			took[step.Step] = term.Duration(seconds(step.Seconds))
		}
	}
	ui.Line("")
	var rows [][]string
	for i, step := range swap.Steps() {
		rows = append(rows, []string{fmt.Sprint(i + 1), step.Name, step.Summary, step.Undoes(), orDash(took[step.Name])})
	}
	ui.Table([]string{"", "STEP", "DOES", "UNDONE BY", "LAST TIME"}, rows)
	ui.Line("")
	for _, s := range plan.Stop {
		ui.Line("%s stops: whoever uses it on %s is cut off after %s at most, and finds nobody there until the end of step 6.",
			s.Instance, s.Where(), s.DrainTimeout)
	}
	if len(plan.Stop) == 0 {
		ui.Line("Nothing that runs is stopped.")
	}
	for _, name := range plan.Displaced {
		ui.Line("%s no longer starts at boot.", name)
	}
	ui.Line("Nothing was touched.")
	return nil
}

// lastTime says how long a swap took when it was done before.
func lastTime(plan *swap.Plan, last *hostctl.Operation) string {
	text := "Last time this took " + term.Duration(seconds(last.Result.Elapsed))
	if last.Result.Silent > 0 {
		text += fmt.Sprintf(", of which %s nothing answered on %s", term.Duration(seconds(last.Result.Silent)), plan.New[0].Section.Where())
	}
	return text + "."
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// swapReport is the JSON of swap.
type swapReport struct {
	Schema   string         `json:"schema"`
	ID       string         `json:"id"`
	State    string         `json:"state"` // planned, swapped, refused, rolled back, rollback failed, stayed
	Changed  bool           `json:"changed"`
	Stop     []string       `json:"stop"`
	Start    []string       `json:"start"`
	Unboot   []string       `json:"no_longer_at_boot"`
	Step     string         `json:"failed_step,omitempty"`
	Error    string         `json:"error,omitempty"`
	Problems []swap.Problem `json:"problems,omitempty"` // of a refusal, before anything was touched
	Undo     []string       `json:"undo_errors,omitempty"`
	Serves   []string       `json:"serves"` // instances that were proven to serve at the end
	Answer   string         `json:"answer,omitempty"`
	Resumed  int            `json:"resumed,omitempty"` // how often it was taken up again after an interruption
	Elapsed  float64        `json:"elapsed_seconds"`
	Silent   float64        `json:"silent_seconds"`
	ExitCode int            `json:"exit_code"`
}

func planReport(plan *swap.Plan) swapReport {
	r := swapReport{Schema: "vllmhost/swap/v1", ID: plan.ID, State: "planned", Stop: []string{}, Start: []string{},
		Unboot: append([]string{}, plan.Displaced...), Serves: []string{}}
	for _, s := range plan.Stop {
		r.Stop = append(r.Stop, s.Instance)
	}
	for _, t := range plan.New {
		r.Start = append(r.Start, t.Section.Instance)
	}
	return r
}

// printResult says how an operation ended. The plan is nil when it did not get as far as that.
func printResult(ui *term.Printer, id string, plan *swap.Plan, res swap.Result, cannot string) error {
	outcome := map[swap.State]exit{
		swap.Swapped: exitDone, swap.Refused: exitFailed, swap.RolledBack: exitRolledBack,
		swap.RollbackFailed: exitRollbackFailed, swap.Stayed: exitRollbackFailed,
	}[res.State]
	if res.Locked {
		outcome = exitLocked
	}
	if ui.JSONOnly {
		r := swapReport{Schema: "vllmhost/swap/v1", ID: id, Stop: []string{}, Start: []string{}, Unboot: []string{}}
		if plan != nil {
			r = planReport(plan)
		}
		r.State, r.Step, r.Answer, r.Error = string(res.State), res.Step, res.Answer, res.Error
		r.Changed = res.State != swap.Refused
		r.Elapsed, r.Silent, r.Resumed = res.Elapsed, res.Silent, res.Resumed
		r.Problems, r.Undo, r.Serves = res.Problems, res.Undo, append([]string{}, res.Serves...)
		r.ExitCode, _ = exitTable(outcome)
		if err := ui.JSON(r); err != nil {
			return err
		}
		return end(outcome)
	}
	switch {
	case res.State == swap.Swapped:
		silent := ""
		if res.Silent > 0 {
			silent = fmt.Sprintf(" Nothing answered on %s for %s.", plan.New[0].Section.Where(), term.Duration(seconds(res.Silent)))
		}
		ui.Line("Swapped in %s.%s", term.Duration(seconds(res.Elapsed)), silent)
		return nil
	case res.Locked:
		return fail(exitLocked, fmt.Errorf("%s: %s", cannot, res.Error), "vllmhost swap --attach", "to wait for it: --wait-lock 30m")
	case plan == nil:
		refused := &swap.RefusedError{Problems: res.Problems}
		return fail(outcome, fmt.Errorf("%s: %s; nothing was touched", cannot, res.Error), refused.Hints()...)
	}
	return swapFailed(ui, plan, res, outcome, cannot)
}

// swapFailed says in one paragraph how things are after a failure, and ends with why.
func swapFailed(ui *term.Printer, plan *swap.Plan, res swap.Result, outcome exit, cannot string) error {
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
	if len(res.Problems) > 0 {
		return swapRefused(ui, plan, &swap.RefusedError{Problems: res.Problems}, cannot)
	}
	switch res.State {
	case swap.Refused:
		ui.Line("Nothing that runs was touched.")
	case swap.RolledBack:
		ui.Line("Rolled back in %s: %s.", term.Duration(seconds(res.Elapsed)), served)
	case swap.Stayed:
		ui.Line("Stopped at step %q, as --on-failure=stay says. Nothing was undone.", res.Step)
		for _, s := range plan.Restore {
			hints = append(hints, "to go back: vllmhost swap "+s.Instance)
		}
	case swap.RollbackFailed:
		ui.Line("The rollback failed. Act now:")
		for _, problem := range res.Undo {
			ui.Line("  %s", problem)
		}
		for _, s := range plan.Restore {
			hints = append(hints, "systemctl start "+unitgen.UnitName(s.Instance))
		}
	}
	return fail(outcome, fmt.Errorf("%s: %s", cannot, res.Error), hints...)
}

// swapRefused lists what stands in the way of a swap that touched nothing.
func swapRefused(ui *term.Printer, plan *swap.Plan, refused *swap.RefusedError, cannot string) error {
	err := fmt.Errorf("%s: %v", cannot, refused)
	if n := len(refused.Problems); n > 1 {
		err = fmt.Errorf("%s: %d problems found before anything was touched", cannot, n)
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
