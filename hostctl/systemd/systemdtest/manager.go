package systemdtest

import (
	"fmt"
	"path"
	"strings"
	"syscall"

	sddbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// manager answers org.freedesktop.systemd1.Manager. Its methods are D-Bus methods.
type manager struct{ s *Server }

func (m manager) Subscribe(sender dbus.Sender) *dbus.Error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if err := m.s.enter("Subscribe"); err != nil {
		return err
	}
	if m.s.subscribers[string(sender)] {
		return dbus.NewError(busName+".AlreadySubscribed", []any{"Client is already subscribed."})
	}
	m.s.subscribers[string(sender)] = true
	return nil
}

func (m manager) StartUnit(name, mode string) (dbus.ObjectPath, *dbus.Error) {
	return m.job("StartUnit", "start", name, mode)
}

func (m manager) StopUnit(name, mode string) (dbus.ObjectPath, *dbus.Error) {
	return m.job("StopUnit", "stop", name, mode)
}

func (m manager) job(method, kind, name, mode string) (dbus.ObjectPath, *dbus.Error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if err := m.s.enter(method); err != nil {
		return "", err
	}
	if mode != "replace" {
		return "", dbus.NewError("org.freedesktop.DBus.Error.InvalidArgs", []any{"Job mode " + mode + " invalid"})
	}
	u, err := m.unit(name)
	if err != nil {
		return "", err
	}
	if u.Load == "masked" && kind == "start" {
		return "", dbus.NewError(busName+".UnitMasked", []any{fmt.Sprintf("Unit %s is masked.", name)})
	}
	script := &u.Starts
	if kind == "stop" {
		script = &u.Stops
	}
	return m.s.queue(name, kind, script).path(), nil
}

func (m manager) KillUnit(name, whom string, signal int32) *dbus.Error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if err := m.s.enter("KillUnit"); err != nil {
		return err
	}
	u, err := m.unit(name)
	if err != nil {
		return err
	}
	if whom == "all" && signal == int32(syscall.SIGKILL) && u.MainPID != 0 {
		m.s.change(name, func(u *Unit) {
			u.Active, u.Sub, u.Result, u.MainPID = "failed", "failed", "signal", 0
			u.ExecMainCode, u.ExecMainStatus, u.ControlGroup = 2, signal, ""
		}, true)
	}
	return nil
}

func (m manager) ResetFailedUnit(name string) *dbus.Error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if err := m.s.enter("ResetFailedUnit"); err != nil {
		return err
	}
	u, err := m.unit(name)
	if err != nil {
		return err
	}
	if u.Active == "failed" {
		m.s.change(name, func(u *Unit) { u.Active, u.Sub, u.Result = "inactive", "dead", "success" }, true)
	}
	return nil
}

func (m manager) Reload() *dbus.Error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if err := m.s.enter("Reload"); err != nil {
		return err
	}
	for _, u := range m.s.units {
		u.NeedReload = false
	}
	return nil
}

// listedUnit is (ssssssouso).
type listedUnit struct {
	Name, Description, Load, Active, Sub, Following string
	Path                                            dbus.ObjectPath
	JobID                                           uint32
	JobType                                         string
	JobPath                                         dbus.ObjectPath
}

func (m manager) ListUnitsByPatterns(states, patterns []string) ([]listedUnit, *dbus.Error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if err := m.s.enter("ListUnitsByPatterns"); err != nil {
		return nil, err
	}
	list := []listedUnit{}
	for name, u := range m.s.units {
		for _, pattern := range patterns {
			if ok, _ := path.Match(pattern, name); ok {
				entry := listedUnit{Name: name, Load: u.Load, Active: u.Active, Sub: u.Sub, Path: unitPath(name), JobPath: "/"}
				if j := m.s.jobOf(name); j != nil {
					entry.JobID, entry.JobType, entry.JobPath = j.id, j.kind, j.path()
				}
				list = append(list, entry)
				break
			}
		}
	}
	return list, nil
}

// unit finds a loaded unit. Called with mu held.
func (m manager) unit(name string) (*Unit, *dbus.Error) {
	u, ok := m.s.units[name]
	if !ok || u.Load == "not-found" {
		return nil, dbus.NewError(busName+".NoSuchUnit", []any{fmt.Sprintf("Unit %s not found.", name)})
	}
	return u, nil
}

// properties answers org.freedesktop.DBus.Properties for the manager, units and jobs.
type properties struct{ s *Server }

func (p properties) Get(msg dbus.Message, iface, name string) (dbus.Variant, *dbus.Error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if err := p.s.enter("Get"); err != nil {
		return dbus.Variant{}, err
	}
	all, err := p.of(msg)
	if err != nil {
		return dbus.Variant{}, err
	}
	v, ok := all[name]
	if !ok {
		return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", []any{"Unknown property " + name})
	}
	return v, nil
}

func (p properties) GetAll(msg dbus.Message, iface string) (map[string]dbus.Variant, *dbus.Error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if err := p.s.enter("GetAll"); err != nil {
		return nil, err
	}
	return p.of(msg)
}

// of returns the properties of the object that a message is for. Called with mu held.
func (p properties) of(msg dbus.Message) (map[string]dbus.Variant, *dbus.Error) {
	object, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	kind, id, _ := strings.Cut(strings.TrimPrefix(string(object), string(managerPath)+"/"), "/")
	switch {
	case object == managerPath:
		return map[string]dbus.Variant{"Version": dbus.MakeVariant(p.s.version)}, nil
	case kind == "unit":
		for name, u := range p.s.units {
			if sddbus.PathBusEscape(name) == id {
				return p.s.unitProperties(u), nil
			}
		}
		// systemd has an object for every name that could be a unit's.
		unknown := Unit{Load: "not-found"}
		setDefaults(&unknown)
		return p.s.unitProperties(&unknown), nil
	case kind == "job" && p.s.jobs[object] != nil:
		return map[string]dbus.Variant{"JobType": dbus.MakeVariant(p.s.jobs[object].kind)}, nil
	}
	return nil, dbus.NewError("org.freedesktop.DBus.Error.UnknownObject", []any{fmt.Sprintf("Unknown object %s.", object)})
}
