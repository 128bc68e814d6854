package hostctl

import (
	"context"
	"sort"

	"vllmhost/conf"
	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// Action is what apply does about one unit.
type Action string

// The actions. Only the first five change a file.
const (
	Create    Action = "create"    // there is no such unit yet
	Update    Action = "update"    // the unit's text differs in meaning, and nothing runs or boots with it
	Pend      Action = "pending"   // it differs, but the unit is active or enabled: a swap installs the new text
	Withdraw  Action = "withdraw"  // the profile is back at the installed text: its pending definition goes
	Remove    Action = "remove"    // its instance left the profile
	Unchanged Action = "unchanged" // it means what the profile says, or its pending definition does
	Keep      Action = "keep"      // edited by hand; only --force overwrites it
	Foreign   Action = "foreign"   // not written by vllmhost; only --force overwrites it
	Orphan    Action = "orphan"    // its instance left the profile, but it still runs
)

// UnitAction is one unit's part of an apply.
type UnitAction struct {
	Unit     string
	Instance string
	Action   Action
	Changes  []unitgen.Change // from the text in force to the wanted one
	Active   bool             // runs now
	Enabled  bool             // starts at boot

	want        []byte // text to write; nil when there is none
	have        []byte // text on disk; nil when there is no file that can be read
	havePending []byte // text waiting for a swap; nil when there is none
}

// Changed reports whether the action writes or removes anything.
func (a UnitAction) Changed() bool {
	switch a.Action {
	case Create, Update, Pend, Withdraw, Remove:
		return true
	}
	return false
}

// plan compares the wanted units with those on disk. force names instances whose unit is overwritten whoever wrote it.
func (h *Host) plan(ctx context.Context, p *conf.Profile, force map[string]bool) ([]UnitAction, error) {
	files, err := h.unitFiles()
	if err != nil {
		return nil, err
	}
	states, err := h.states(ctx)
	if err != nil {
		return nil, err
	}
	var actions []UnitAction
	for _, u := range unitgen.RenderAll(p) {
		instance, _ := unitgen.InstanceOf(u.Name)
		a, err := h.planUnit(u, files[u.Name], states[u.Name], force[instance])
		if err != nil {
			return nil, err
		}
		actions = append(actions, a)
		delete(files, u.Name)
	}
	for name, f := range files {
		if !f.ours {
			continue
		}
		a, err := h.planRemoval(f, states[name], force[f.section.Instance])
		if err != nil {
			return nil, err
		}
		actions = append(actions, a)
	}
	sort.Slice(actions, func(i, j int) bool { return actions[i].Unit < actions[j].Unit })
	return actions, nil
}

// states returns the state of every loaded vllm-*.service in systemd's words for active and sub, nothing more: one call,
// however many units there are.
func (h *Host) states(ctx context.Context) (map[string]systemd.UnitStatus, error) {
	loaded, err := h.systemd.List(ctx, "vllm-*.service")
	if err != nil {
		return nil, err
	}
	states := make(map[string]systemd.UnitStatus, len(loaded))
	for _, s := range loaded {
		states[s.Name] = s
	}
	return states, nil
}

// running reports whether a unit runs or will by itself. The zero value is a unit that is not loaded.
func running(s systemd.UnitStatus) bool {
	return s.Active != "" && s.Active != "inactive" && s.Active != "failed"
}

func (h *Host) planUnit(u unitgen.Unit, f unitFile, state systemd.UnitStatus, force bool) (UnitAction, error) {
	instance, _ := unitgen.InstanceOf(u.Name)
	a := UnitAction{Unit: u.Name, Instance: instance, Active: running(state),
		want: u.Text, have: f.text, havePending: f.pending}
	var err error
	if a.Enabled, err = h.units.Enabled(u.Name, bootTarget); err != nil {
		return a, err
	}
	if f.exists {
		a.Changes = unitgen.Changes(f.text, u.Text)
	}
	switch {
	case f.exists && (!f.ours || f.edited):
		a.Action = keepUnless(force, f)
	case f.exists && len(a.Changes) == 0 && f.pending != nil:
		a.Action = Withdraw
	case f.exists && len(a.Changes) == 0:
		a.Action = Unchanged
	case a.Active || a.Enabled:
		a.Action = Pend
		if f.pending != nil && unitgen.Same(f.pending, u.Text) {
			a.Action = Unchanged
		}
	case f.exists:
		a.Action = Update
	default:
		a.Action = Create
	}
	return a, nil
}

// keepUnless decides on a unit that is not as vllmhost wrote it. Forced, it is overwritten at once, also while it runs:
// nothing proven is lost.
func keepUnless(force bool, f unitFile) Action {
	switch {
	case force:
		return Update
	case f.ours:
		return Keep
	}
	return Foreign
}

func (h *Host) planRemoval(f unitFile, state systemd.UnitStatus, force bool) (UnitAction, error) {
	a := UnitAction{Unit: f.name, Instance: f.section.Instance, Active: running(state), have: f.text, havePending: f.pending}
	var err error
	if a.Enabled, err = h.units.Enabled(f.name, bootTarget); err != nil {
		return a, err
	}
	switch {
	case a.Active:
		a.Action = Orphan
	case f.edited && !force:
		a.Action = Keep
	default:
		a.Action = Remove
	}
	return a, nil
}
