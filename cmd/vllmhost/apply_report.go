package main

import (
	"fmt"
	"time"

	"vllmhost/cmd/vllmhost/term"
	"vllmhost/hostctl"
)

// printApplied says what an apply did, or would do.
func printApplied(ui *term.Printer, done hostctl.Applied, dryRun, diff bool, took time.Duration) error {
	if ui.JSONOnly {
		return ui.JSON(appliedJSON(done, dryRun))
	}
	counts := map[hostctl.Action]int{}
	for _, u := range done.Units {
		counts[u.Action]++
		if u.Action == hostctl.Unchanged {
			continue
		}
		verb, note := describeAction(u, dryRun)
		if diff {
			ui.Line("%s: %s%s", u.Unit, verb, join(", ", note))
			for _, c := range u.Changes {
				for _, line := range c.Lines() {
					ui.Line("  %s", line)
				}
			}
			continue
		}
		ui.Line("%-9s  %-*s  %s", verb, unitWidth(done.Units), u.Unit, note)
	}
	changed := 0
	for _, u := range done.Units {
		if u.Changed() {
			changed++
		}
	}
	switch {
	case len(done.Units) == 0:
		ui.Line("The profile has no instances, and there are no units of vllmhost.")
	case changed == 0:
		ui.Line("Nothing to change: %s as the profile says.", units(counts[hostctl.Unchanged]))
	case dryRun:
		ui.Line("%d of %s would change. Apply with: vllmhost apply", changed, units(len(done.Units)))
	default:
		reload := "No reload was needed."
		if done.Reloaded {
			reload = "systemd was reloaded."
		}
		ui.Line("Changed %d of %s in %s. %s", changed, units(len(done.Units)), term.Duration(took), reload)
	}
	return nil
}

// describeAction says what was done about a unit, and what to type next.
func describeAction(u hostctl.UnitAction, dryRun bool) (verb, note string) {
	past := func(word, participle string) string {
		if dryRun {
			return word
		}
		return participle
	}
	switch u.Action {
	case hostctl.Create:
		return past("create", "created"), "to start it: vllmhost swap " + u.Instance
	case hostctl.Update:
		return past("update", "updated"), "takes effect at the next start"
	case hostctl.Pend:
		why := "starts at boot"
		if u.Active {
			why = "runs"
		}
		return "pending", why + " with the old definition; to use the new one: vllmhost swap " + u.Instance
	case hostctl.Withdraw:
		return past("withdraw", "withdrawn"), "the profile is back at the installed definition"
	case hostctl.Remove:
		return past("remove", "removed"), "its instance left the profile"
	case hostctl.Keep:
		return "kept", "edited by hand; to see: vllmhost apply --diff; to overwrite: vllmhost apply --force " + u.Instance
	case hostctl.Orphan:
		return "kept", "its instance left the profile, but it runs; to stop it: systemctl stop " + u.Unit
	case hostctl.Foreign:
		return "foreign", "not written by vllmhost; to overwrite: vllmhost apply --force " + u.Instance
	}
	return string(u.Action), ""
}

func unitWidth(all []hostctl.UnitAction) int {
	width := 0
	for _, u := range all {
		width = max(width, len(u.Unit))
	}
	return width
}

func units(n int) string {
	if n == 1 {
		return "1 unit"
	}
	return fmt.Sprintf("%d units", n)
}

func join(separator, s string) string {
	if s == "" {
		return ""
	}
	return separator + s
}

// appliedReport is the JSON of apply.
type appliedReport struct {
	Schema   string              `json:"schema"`
	Changed  bool                `json:"changed"`
	DryRun   bool                `json:"dry_run"`
	ID       string              `json:"id,omitempty"`
	Reloaded bool                `json:"reloaded"`
	Units    []appliedUnitReport `json:"units"`
}

type appliedUnitReport struct {
	Unit     string   `json:"unit"`
	Instance string   `json:"instance"`
	Action   string   `json:"action"`
	Changed  bool     `json:"changed"`
	Active   bool     `json:"active"`
	Boot     bool     `json:"boot"`
	Diff     []string `json:"diff"`
	Note     string   `json:"note,omitempty"`
}

func appliedJSON(done hostctl.Applied, dryRun bool) appliedReport {
	report := appliedReport{Schema: "vllmhost/apply/v1", Changed: done.Changed(), DryRun: dryRun, ID: done.ID,
		Reloaded: done.Reloaded, Units: []appliedUnitReport{}}
	for _, u := range done.Units {
		row := appliedUnitReport{Unit: u.Unit, Instance: u.Instance, Action: string(u.Action), Changed: u.Changed(),
			Active: u.Active, Boot: u.Enabled, Diff: []string{}}
		if u.Action != hostctl.Unchanged {
			_, row.Note = describeAction(u, dryRun)
		}
		for _, c := range u.Changes {
			row.Diff = append(row.Diff, c.Lines()...)
		}
		report.Units = append(report.Units, row)
	}
	return report
}
