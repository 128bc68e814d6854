package systemd

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sddbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// UnitStatus is what systemd knows of a unit at one moment; the words are systemd's own. Fields that only services
// have are zero for other units.
type UnitStatus struct {
	Name         string
	Load         string // loaded, not-found, bad-setting, error, masked
	Active       string // active, reloading, inactive, failed, activating, deactivating
	Sub          string // running, start-pre, start-post, auto-restart, stop-sigterm, dead, ...
	Result       string // success, exit-code, signal, timeout, start-limit-hit, oom-kill, ...
	StatusText   string // what the service said of itself, sd_notify(3) STATUS=: foreign text
	InvocationID string // 32 hex digits, new with every start; empty if never started
	ControlGroup string // such as /system.slice/vllm-a.service; empty while nothing runs
	FragmentPath string // the unit file as loaded
	DropIns      []string

	// UnitFileState is enabled, disabled, static, ... as of systemd's last reload, not as of now.
	UnitFileState string

	MainPID        int
	ExecMainCode   string // how the last main process ended: exited, killed, dumped; empty if it runs or never ran
	ExecMainStatus int    // its exit status, or the number of the signal
	FailedHook     string // the ExecStartPre= or ExecStartPost= that failed at the last start, with its end
	NRestarts      int    // restarts by systemd itself since the last start that somebody asked for

	// ConditionFailed says that the last start was skipped because a Condition...= did not hold.
	ConditionFailed bool

	// NeedReload says that files of the unit changed since systemd read them.
	NeedReload bool

	Since       time.Time // the last change of Active or Sub
	ActiveSince time.Time // when it last became active

	ExecStart   []string // the command as loaded, its name first
	Environment []string // NAME=value, as loaded, without those of an EnvironmentFile=

	Job Job
}

// Job is an entry of systemd's queue.
type Job struct {
	ID   uint32 // 0: none
	Type string // start, stop, restart, ...; empty if it ended while being read
}

// Unit reads the state of a unit. A name that systemd knows nothing of gives Load "not-found" and no error; a unit that
// is not loaded is loaded for the reading.
func (c *Client) Unit(ctx context.Context, name string) (UnitStatus, error) {
	s, err := c.unit(ctx, name)
	if err != nil {
		return UnitStatus{}, fmt.Errorf("cannot read the state of %q: %w", name, err)
	}
	return s, nil
}

// List names every loaded unit whose name matches one of the patterns of glob(7), sorted by name, with its Name, Load,
// Active, Sub and Job, and nothing else of its status: in one call, however many they are. Units that others only
// mention and that do not exist are left out. No pattern means no unit.
func (c *Client) List(ctx context.Context, patterns ...string) ([]UnitStatus, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	body, err := c.call(ctx, managerPath, managerIface+".ListUnitsByPatterns", []string{}, patterns)
	if err != nil {
		return nil, fmt.Errorf("cannot list units %q: %w", patterns, err)
	}
	var entries []sddbus.UnitStatus
	if err := dbus.Store(body, &entries); err != nil {
		return nil, fmt.Errorf("cannot list units %q: cannot understand the answer: %v", patterns, err)
	}
	units := make([]UnitStatus, 0, len(entries))
	for _, e := range entries {
		if e.LoadState != "not-found" {
			units = append(units, UnitStatus{Name: e.Name, Load: e.LoadState, Active: e.ActiveState, Sub: e.SubState,
				Job: Job{ID: e.JobId, Type: e.JobType}})
		}
	}
	slices.SortFunc(units, func(a, b UnitStatus) int { return cmp.Compare(a.Name, b.Name) })
	return units, nil
}

// State reads of one unit what List tells, and its StatusText, InvocationID and ControlGroup: for a fifth of what Unit costs
// systemd, which matters while it is busy starting that unit. It does not load a unit: one that is not is inactive.
func (c *Client) State(ctx context.Context, name string) (UnitStatus, error) {
	s, err := c.state(ctx, name)
	if err != nil {
		return UnitStatus{}, fmt.Errorf("cannot read the state of %q: %w", name, err)
	}
	return s, nil
}

// state is State without the words around an error.
func (c *Client) state(ctx context.Context, name string) (UnitStatus, error) {
	path, err := unitPath(name)
	if err != nil {
		return UnitStatus{}, err
	}
	list, err := c.List(ctx, pattern(name))
	if err != nil {
		return UnitStatus{}, err
	}
	if len(list) == 0 {
		return UnitStatus{Name: name, Active: "inactive", Sub: "dead"}, nil
	}
	s := list[0]
	var values [3]any
	for i, p := range [3][2]string{{unitIface, "InvocationID"}, {serviceIface, "StatusText"}, {serviceIface, "ControlGroup"}} {
		var refused *answer
		if values[i], err = c.property(ctx, path, p[0], p[1]); err != nil && !errors.As(err, &refused) { // refused: it is no service
			return UnitStatus{}, err
		}
	}
	id, _ := values[0].([]byte)
	s.InvocationID = hex.EncodeToString(id)
	s.StatusText, _ = values[1].(string)
	s.ControlGroup, _ = values[2].(string)
	return s, nil
}

// Definition says how a unit is loaded, or would be: systemd's word (Load of a UnitStatus), and its drop-ins. It costs half
// of what Unit does for one that is not loaded.
func (c *Client) Definition(ctx context.Context, name string) (load string, dropIns []string, err error) {
	path, err := unitPath(name)
	if err != nil {
		return "", nil, fmt.Errorf("cannot read the definition of %q: %w", name, err)
	}
	for property, value := range map[string]any{"LoadState": &load, "DropInPaths": &dropIns} {
		v, err := c.property(ctx, path, unitIface, property)
		if err == nil {
			err = dbus.Store([]any{v}, value)
		}
		if err != nil {
			return "", nil, fmt.Errorf("cannot read the definition of %q: %w", name, err)
		}
	}
	return load, dropIns, nil
}

// pattern matches one unit name alone.
func pattern(name string) string { return strings.ReplaceAll(name, `\`, `\\`) }

// unit is Unit without the words around an error.
func (c *Client) unit(ctx context.Context, name string) (UnitStatus, error) {
	path, err := unitPath(name)
	if err != nil {
		return UnitStatus{}, err
	}
	// The empty interface name asks for the properties of all of them in one answer, so that they fit each other.
	body, err := c.call(ctx, path, propsIface+".GetAll", "")
	if err != nil {
		return UnitStatus{}, err
	}
	var props map[string]dbus.Variant
	if err := dbus.Store(body, &props); err != nil {
		return UnitStatus{}, fmt.Errorf("cannot understand the answer: %v", err)
	}
	s := decode(props)
	s.Name = name
	if job := get[[]any](props, "Job"); s.Job.ID != 0 && len(job) == 2 {
		if path, ok := job[1].(dbus.ObjectPath); ok {
			kind, _ := c.property(ctx, path, jobIface, "JobType") // an error: it has ended
			s.Job.Type, _ = kind.(string)
		}
	}
	return s, nil
}

// unitPath returns the object of a unit.
func unitPath(name string) (dbus.ObjectPath, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	return managerPath + "/unit/" + dbus.ObjectPath(sddbus.PathBusEscape(name)), nil
}

// checkName refuses what systemd.unit(5) does not allow in a unit name. Some of it would not only be refused by the
// bus: it would end the connection.
func checkName(name string) error {
	const special = ":-_.\\@"
	if name == "" || len(name) > 255 || !strings.Contains(name, ".") {
		return fmt.Errorf("%q is not a unit name", name)
	}
	for _, r := range name {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(special, r)) {
			return fmt.Errorf("%q is not a unit name", name)
		}
	}
	return nil
}

// get returns a property, or the zero value where it is absent or of another type.
func get[T any](props map[string]dbus.Variant, name string) T {
	v, _ := props[name].Value().(T)
	return v
}

// decode reads the properties of org.freedesktop.systemd1(5), "Unit Objects" and "Service Unit Objects".
func decode(props map[string]dbus.Variant) UnitStatus {
	s := UnitStatus{
		Load:           get[string](props, "LoadState"),
		Active:         get[string](props, "ActiveState"),
		Sub:            get[string](props, "SubState"),
		Result:         get[string](props, "Result"),
		StatusText:     get[string](props, "StatusText"),
		InvocationID:   hex.EncodeToString(get[[]byte](props, "InvocationID")),
		ControlGroup:   get[string](props, "ControlGroup"),
		FragmentPath:   get[string](props, "FragmentPath"),
		DropIns:        get[[]string](props, "DropInPaths"),
		UnitFileState:  get[string](props, "UnitFileState"),
		MainPID:        int(get[uint32](props, "MainPID")),
		ExecMainCode:   exitWord(get[int32](props, "ExecMainCode")),
		ExecMainStatus: int(get[int32](props, "ExecMainStatus")),
		NRestarts:      int(get[uint32](props, "NRestarts")),
		NeedReload:     get[bool](props, "NeedDaemonReload"),
		Since:          usec(get[uint64](props, "StateChangeTimestamp")),
		ActiveSince:    usec(get[uint64](props, "ActiveEnterTimestamp")),
		Environment:    get[[]string](props, "Environment"),
	}
	s.ConditionFailed = get[uint64](props, "ConditionTimestamp") != 0 && !get[bool](props, "ConditionResult")
	if commands := commands(props, "ExecStart"); len(commands) > 0 {
		s.ExecStart = commands[0].argv
	}
	for _, setting := range []string{"ExecStartPre", "ExecStartPost"} {
		for _, c := range commands(props, setting) {
			if c.failed() {
				s.FailedHook = fmt.Sprintf("%s=%s %s", setting, strings.Join(c.argv, " "), end(c.code, c.status))
			}
		}
	}
	if job := get[[]any](props, "Job"); len(job) > 0 {
		s.Job.ID, _ = job[0].(uint32)
	}
	return s
}

// usec is a time as systemd counts it: microseconds since 1970, 0 for never.
func usec(t uint64) time.Time {
	if t == 0 || int64(t) < 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(t))
}
