package hostctl

import (
	"context"
	"sort"
	"strings"
	"time"

	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// InstanceStatus is how one instance is doing.
type InstanceStatus struct {
	Instance string    `json:"instance"`
	Unit     string    `json:"unit"`
	Active   string    `json:"active"` // systemd's word: active, inactive, failed, activating, deactivating
	State    string    `json:"state"`  // in words
	Since    time.Time `json:"since,omitzero"`
	Model    string    `json:"model"` // name in the profile
	Path     string    `json:"model_path"`
	Port     int       `json:"port,omitempty"`
	UDS      string    `json:"uds,omitempty"`
	GPUs     string    `json:"gpus"`    // "0-7", "all", "-"
	Pending  bool      `json:"pending"` // a definition waits for a swap
	Drift    string    `json:"drift"`   // "", "edited by hand", "not written by vllmhost"
	Boot     bool      `json:"boot"`    // starts at boot
	DropIns  []string  `json:"drop_ins,omitempty"`
	Restarts int       `json:"restarts,omitempty"` // of the running unit, by systemd
}

// Serving reports whether the instance is active: ready and proven so at its start.
func (s InstanceStatus) Serving() bool { return s.Active == "active" }

// Status returns the state of all instances that have a unit or a pending one, ordered by name. It reads units only: a
// broken profile does not hide how things are.
func (h *Host) Status(ctx context.Context) ([]InstanceStatus, error) {
	files, err := h.unitFiles()
	if err != nil {
		return nil, err
	}
	states, err := h.states(ctx)
	if err != nil {
		return nil, err
	}
	var all []InstanceStatus
	for name, f := range files {
		state := states[name]
		if state.Active != "" && state.Active != "inactive" {
			if state, err = h.systemd.Unit(ctx, name); err != nil {
				return nil, err
			}
		}
		s, err := h.instanceStatus(name, f, state)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Instance < all[j].Instance })
	return all, nil
}

func (h *Host) instanceStatus(name string, f unitFile, state systemd.UnitStatus) (InstanceStatus, error) {
	instance, _ := unitgen.InstanceOf(name)
	s := InstanceStatus{
		Instance: instance, Unit: name,
		Active: state.Active, State: StateText(state), Since: state.Since,
		Model: f.section.ModelName, Path: f.section.Model,
		Port: f.section.Port, UDS: f.section.UDS, GPUs: f.section.GPUText(),
		Pending: f.pending != nil, Restarts: state.NRestarts,
	}
	if s.Active == "" {
		s.Active = "inactive"
	}
	switch {
	case !f.ours:
		s.Drift = "not written by vllmhost"
	case f.edited:
		s.Drift = "edited by hand"
	}
	var err error
	if s.Boot, err = h.units.Enabled(name, bootTarget); err != nil {
		return s, err
	}
	s.DropIns, err = h.units.DropIns(name)
	return s, err
}

// StateText puts a unit's state in words. The zero value is a unit that is not loaded: it never ran since boot.
func StateText(u systemd.UnitStatus) string {
	switch u.Active {
	case "active":
		return "serving"
	case "activating":
		return activating(u)
	case "deactivating":
		return "stopping"
	case "failed":
		return "failed: " + failure(u)
	}
	return "stopped"
}

func activating(u systemd.UnitStatus) string {
	switch {
	case u.Sub == "auto-restart":
		return "restarting after: " + failure(u)
	case u.StatusText != "":
		return lowerFirst(u.StatusText)
	case u.Sub == "start-pre":
		return "checking"
	}
	return "loading"
}

// failure says why a unit does not run.
func failure(u systemd.UnitStatus) string {
	if strings.HasPrefix(u.StatusText, "Refused: ") {
		return lowerFirst(u.StatusText)
	}
	if why, ok := strings.CutPrefix(u.StatusText, "Failed: "); ok {
		return why
	}
	if why := u.Failure(); why != "" {
		return why
	}
	return "the engine ended by itself"
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
