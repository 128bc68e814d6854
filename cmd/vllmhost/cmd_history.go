package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vllmhost/cmd/vllmhost/term"
	"vllmhost/hostctl"
)

func newHistoryCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "history [ID]",
		Short: "Show what was done to this host, and how long it took",
		Long: `Lists the operations of this host, the newest first: swaps, rollbacks, and applies that changed something. With an ID it
shows that operation's steps, with their times and what came of them. The last 200 are kept.`,
		Example: `  vllmhost history
  vllmhost history 7f3k
  vllmhost history --json`,
		Annotations: exits(exitDone, exitFailed),
		GroupID:     groupServing,
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer host.Close()
			if len(args) == 1 {
				o, err := host.Operation(args[0])
				if errors.Is(err, fs.ErrNotExist) {
					return fail(exitFailed, fmt.Errorf("cannot show %q: no such operation", args[0]), "vllmhost history")
				}
				if err != nil {
					return historyError(err)
				}
				return printOperation(a.ui, o)
			}
			all, strange, err := host.History()
			if err != nil {
				return historyError(err)
			}
			for _, err := range strange {
				a.ui.Warn("%v", err)
			}
			return printHistory(a.ui, all)
		},
	}
}

// historyError is also what others than root get: records hold whole units.
func historyError(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fail(exitFailed, err, "sudo "+commandLine())
	}
	return hostError(err)
}

// historyReport is the JSON of history.
type historyReport struct {
	Schema     string            `json:"schema"`
	Operations []operationReport `json:"operations"`
}

type operationReport struct {
	hostctl.Operation
	Steps []hostctl.StepTime `json:"steps"`
}

func reportOf(o hostctl.Operation) operationReport {
	return operationReport{o, append([]hostctl.StepTime{}, o.Steps()...)}
}

func printHistory(ui *term.Printer, all []hostctl.Operation) error {
	if ui.JSONOnly {
		r := historyReport{Schema: "vllmhost/history/v1", Operations: []operationReport{}}
		for _, o := range all {
			r.Operations = append(r.Operations, reportOf(o))
		}
		return ui.JSON(r)
	}
	if len(all) == 0 {
		ui.Line("Nothing was done to this host yet.")
		return nil
	}
	var rows [][]string
	for _, o := range all {
		rows = append(rows, []string{o.ID, o.Began.Local().Format("2006-01-02 15:04"), o.Op, string(o.State), took(o), orDash(o.User), o.Summary})
	}
	ui.Table([]string{"ID", "BEGAN", "OPERATION", "OUTCOME", "TOOK", "BY", "WHAT"}, rows)
	return nil
}

func printOperation(ui *term.Printer, o hostctl.Operation) error {
	if ui.JSONOnly {
		return ui.JSON(historyReport{Schema: "vllmhost/history/v1", Operations: []operationReport{reportOf(o)}})
	}
	by := ""
	if o.User != "" {
		by = ", asked for by " + o.User
	}
	ui.Line("%s %s: %s", title(o.Op), o.ID, o.Summary)
	ui.Line("Began %s%s.", o.Began.Local().Format("2006-01-02 15:04:05"), by)
	ui.Line("")
	var rows [][]string
	for _, s := range o.Steps() {
		rows = append(rows, []string{s.Step, string(s.State), term.Duration(seconds(s.Seconds)), s.Text})
	}
	if len(rows) > 0 {
		ui.Table([]string{"STEP", "", "TOOK", ""}, rows)
		ui.Line("")
	}
	outcome := string(o.State)
	if r := o.Result; r != nil {
		if r.Silent > 0 {
			outcome += fmt.Sprintf("; nothing answered for %s", term.Duration(seconds(r.Silent)))
		}
		if r.Resumed > 0 {
			outcome += fmt.Sprintf("; interrupted, and taken up again, %s", count(r.Resumed, "time"))
		}
		if r.Error != "" {
			outcome += "; " + r.Error
		}
	}
	ui.Line("Outcome: %s. It took %s.", outcome, took(o))
	return nil
}

// took is how long an operation took, or has taken so far.
func took(o hostctl.Operation) string {
	end := o.Ended
	if end.IsZero() {
		end = time.Now()
	}
	return term.Duration(max(0, end.Sub(o.Began)))
}

// title begins a line with an operation's name.
func title(op string) string { return strings.ToUpper(op[:1]) + op[1:] }
