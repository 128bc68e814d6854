package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vllmhost/cmd/vllmhost/term"
	"vllmhost/hostctl"
)

func newStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status [NAME...]",
		Short: "Show what serves, and what would at boot",
		Long: `Shows each instance: its state in words, since when, its model, port and GPUs, and whether it starts at boot. Below: what
waits for a swap, and units that are not as vllmhost wrote them. It reads units, not the profile.`,
		Example: `  vllmhost status
  vllmhost status kimi-int4 && echo serving
  vllmhost status --json`,
		Annotations: exits(exitDone, exitFailed, exitNotActive, exitNoInstance),
		GroupID:     groupServing,
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer host.Close()
			all, err := host.Status(cmd.Context())
			if err != nil {
				return hostError(err)
			}
			shown, err := choose(all, args)
			if err != nil {
				return err
			}
			var operation *operationStatus
			if open, err := host.UnderWay(); err == nil { // others than root are not told
				operation = &operationStatus{open.ID, open.Op, open.Summary(), open.Step, open.Request.User, open.Began}
			}
			if a.ui.JSONOnly {
				err = a.ui.JSON(statusReport{"vllmhost/status/v1", shown, operation})
			} else {
				printStatus(a.ui, shown, operation, time.Now())
			}
			for _, s := range shown {
				if len(args) > 0 && !s.Serving() {
					return end(exitNotActive)
				}
			}
			return err
		},
	}
}

// statusReport is the JSON of status.
type statusReport struct {
	Schema    string                   `json:"schema"`
	Instances []hostctl.InstanceStatus `json:"instances"`
	Operation *operationStatus         `json:"operation,omitempty"`
}

// operationStatus is the swap or rollback that goes on.
type operationStatus struct {
	ID      string    `json:"id"`
	Op      string    `json:"op"`
	Summary string    `json:"summary"`
	Step    string    `json:"step"`
	User    string    `json:"user"`
	Began   time.Time `json:"began"`
}

// choose returns the instances with these names, or all of them.
func choose(all []hostctl.InstanceStatus, names []string) ([]hostctl.InstanceStatus, error) {
	if len(names) == 0 {
		return append([]hostctl.InstanceStatus{}, all...), nil
	}
	var shown []hostctl.InstanceStatus
	for _, name := range names {
		found := false
		for _, s := range all {
			if s.Instance == name {
				shown, found = append(shown, s), true
			}
		}
		if !found {
			return nil, fail(exitNoInstance, fmt.Errorf("cannot show %q: no such instance", name), "vllmhost status")
		}
	}
	return shown, nil
}

func printStatus(ui *term.Printer, all []hostctl.InstanceStatus, operation *operationStatus, now time.Time) {
	if len(all) == 0 {
		ui.Line("No instances. Describe them in %s, then: vllmhost apply", defaultProfile)
		return
	}
	var rows [][]string
	for _, s := range all {
		since := "-"
		if !s.Since.IsZero() {
			since = term.Duration(now.Sub(s.Since))
		}
		boot := "-"
		if s.Boot {
			boot = "yes"
		}
		rows = append(rows, []string{s.Instance, s.State, since, orDash(s.Model), orDash(where(s)), s.GPUs, boot})
	}
	ui.Table([]string{"INSTANCE", "STATE", "SINCE", "MODEL", "PORT", "GPUS", "BOOT"}, rows)
	var notes []string
	if o := operation; o != nil {
		notes = append(notes, fmt.Sprintf("%s %s (%s), asked for by %s %s ago, is at step %q; to watch it: vllmhost swap --attach",
			title(o.Op), o.ID, o.Summary, o.User, term.Duration(max(0, now.Sub(o.Began))), o.Step))
	}
	for _, s := range all {
		notes = append(notes, statusNotes(s)...)
	}
	if len(notes) > 0 {
		ui.Line("")
	}
	for _, note := range notes {
		ui.Line("%s", note)
	}
}

// statusNotes says what a line of the table has no room for, and what to type about it.
func statusNotes(s hostctl.InstanceStatus) []string {
	var notes []string
	if s.Pending {
		notes = append(notes, fmt.Sprintf("%s: a new definition is pending; to use it: vllmhost swap %s", s.Instance, s.Instance))
	}
	if s.Drift != "" {
		notes = append(notes, fmt.Sprintf("%s: %s is %s; to see it: systemctl cat %s", s.Instance, s.Unit, s.Drift, s.Unit))
	}
	if len(s.DropIns) > 0 {
		notes = append(notes, fmt.Sprintf("%s: has drop-ins: %s", s.Instance, strings.Join(s.DropIns, ", ")))
	}
	if s.Active == "failed" {
		notes = append(notes, fmt.Sprintf("%s: to see why: journalctl -u %s -n 50", s.Instance, s.Unit))
	}
	return notes
}

func where(s hostctl.InstanceStatus) string {
	if s.Port > 0 {
		return fmt.Sprint(s.Port)
	}
	return s.UDS
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// count is a number with its noun: "1 instance", "2 instances".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
