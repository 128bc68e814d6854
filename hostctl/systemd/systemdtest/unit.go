package systemdtest

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	sddbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Unit is a unit that the scripted systemd has loaded. Empty words are filled in: a unit is loaded, inactive (dead),
// with result success.
type Unit struct {
	Name string
	Load string // loaded, not-found, masked, ...

	Active, Sub, Result string
	StatusText          string
	InvocationID        string // 32 hex digits; a start that succeeds sets a new one
	ControlGroup        string
	FragmentPath        string
	DropIns             []string
	UnitFileState       string
	MainPID             uint32
	ExecMainCode        int32 // 1 exited, 2 killed, 3 dumped
	ExecMainStatus      int32
	NRestarts           uint32
	NeedReload          bool // cleared by Reload
	ConditionFailed     bool
	Since, ActiveSince  time.Time
	ExecStart           []string
	Environment         []string
	Hooks               []Hook

	// Starts and Stops script what jobs do: one entry a job, the last for all that follow. None means that all succeed.
	Starts, Stops []Outcome
}

// Hook is an ExecStartPre= or ExecStartPost= of a unit and how it last ended.
type Hook struct {
	Setting string // "ExecStartPre" or "ExecStartPost"
	Argv    []string
	Code    int32 // as ExecMainCode; 0: it did not run
	Status  int32
}

// Outcome is what a job does.
type Outcome struct {
	// Result is the job's result; empty means done.
	Result string

	// Takes is how long the job runs. Hang means for ever, or until another job replaces it or FinishJobs is called.
	Takes time.Duration
	Hang  bool

	// During changes the unit when the job begins to run, After when it ends. Where After is nil, a start that is done
	// makes the unit active, one that is not makes it failed, and a stop that is done makes it inactive.
	During, After func(*Unit)

	// Lost keeps every signal of the job's end from being sent.
	Lost bool
}

// Add loads a unit, replacing one of that name.
func (s *Server) Add(u Unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	setDefaults(&u)
	s.units[u.Name] = &u
}

// Unit returns the present state of a unit.
func (s *Server) Unit(name string) (Unit, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.units[name]
	if !ok {
		return Unit{}, false
	}
	return *u, true
}

// Remove unloads a unit: systemd then knows nothing of it.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.units, name)
}

// Update changes a unit and signals it.
func (s *Server) Update(name string, change func(*Unit)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(name, change, true)
}

// UpdateSilently changes a unit as if the signal were lost.
func (s *Server) UpdateSilently(name string, change func(*Unit)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(name, change, false)
}

// change is called with mu held.
func (s *Server) change(name string, change func(*Unit), signal bool) {
	u, ok := s.units[name]
	if !ok {
		panic(fmt.Sprintf("systemdtest: no unit %q was added", name))
	}
	before := *u
	change(u)
	setDefaults(u)
	if u.Active != before.Active || u.Sub != before.Sub {
		u.Since = time.Now()
		if u.Active == "active" && before.Active != "active" {
			u.ActiveSince = u.Since
		}
	}
	if signal {
		s.emit(unitPath(name), propsIface+".PropertiesChanged", busName+".Unit",
			map[string]dbus.Variant{"ActiveState": dbus.MakeVariant(u.Active), "SubState": dbus.MakeVariant(u.Sub)},
			[]string{"Job"})
	}
}

func setDefaults(u *Unit) {
	u.Load = cmp.Or(u.Load, "loaded")
	u.Active = cmp.Or(u.Active, "inactive")
	u.Result = cmp.Or(u.Result, "success")
	u.Sub = cmp.Or(u.Sub, map[string]string{
		"active": "running", "inactive": "dead", "failed": "failed", "activating": "start", "deactivating": "stop-sigterm",
	}[u.Active])
}

func unitPath(name string) dbus.ObjectPath {
	return managerPath + "/unit/" + dbus.ObjectPath(sddbus.PathBusEscape(name))
}

// unitProperties gives a unit's properties with the types of org.freedesktop.systemd1(5). Called with mu held.
func (s *Server) unitProperties(u *Unit) map[string]dbus.Variant {
	id, _ := hex.DecodeString(u.InvocationID)
	props := map[string]any{
		"Id": u.Name, "LoadState": u.Load, "ActiveState": u.Active, "SubState": u.Sub, "Result": u.Result,
		"StatusText": u.StatusText, "InvocationID": id, "ControlGroup": u.ControlGroup, "FragmentPath": u.FragmentPath,
		"DropInPaths": nonNil(u.DropIns), "UnitFileState": u.UnitFileState, "MainPID": u.MainPID,
		"ExecMainCode": u.ExecMainCode, "ExecMainStatus": u.ExecMainStatus, "NRestarts": u.NRestarts,
		"NeedDaemonReload": u.NeedReload, "StateChangeTimestamp": usec(u.Since), "ActiveEnterTimestamp": usec(u.ActiveSince),
		"Environment": nonNil(u.Environment), "ConditionResult": !u.ConditionFailed, "ConditionTimestamp": uint64(1),
		"ExecStart":     commands([]Hook{{Argv: u.ExecStart}}),
		"ExecStartPre":  commands(hooksOf(u, "ExecStartPre")),
		"ExecStartPost": commands(hooksOf(u, "ExecStartPost")),
		"Job":           s.jobProperty(u.Name),
	}
	variants := make(map[string]dbus.Variant, len(props))
	for name, value := range props {
		variants[name] = dbus.MakeVariant(value)
	}
	return variants
}

// execCommand is a(sasbttttuii).
type execCommand struct {
	Path                   string
	Argv                   []string
	IgnoreFailure          bool
	Started, StartedMono   uint64
	Finished, FinishedMono uint64
	PID                    uint32
	Code, Status           int32
}

func commands(hooks []Hook) []execCommand {
	list := []execCommand{}
	for _, h := range hooks {
		if len(h.Argv) > 0 {
			list = append(list, execCommand{Path: h.Argv[0], Argv: h.Argv, Code: h.Code, Status: h.Status})
		}
	}
	return list
}

func hooksOf(u *Unit, setting string) []Hook {
	return slices.DeleteFunc(slices.Clone(u.Hooks), func(h Hook) bool { return h.Setting != setting })
}

func nonNil(list []string) []string { return append([]string{}, list...) }

func usec(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMicro())
}
