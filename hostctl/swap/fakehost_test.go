package swap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"syscall"
	"testing"

	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// fakeHost is a host in memory whose every call can be made to fail. Two units that conflict never run together on it:
// a start beside a running one is an error, as the guard would make it.
type fakeHost struct {
	text    map[string]string // unit files
	pending map[string]string
	kept    map[string]string // unit files put aside
	boot    map[string]bool
	active  map[string]string // running units, with the text they were started with
	loaded  map[string]string // the texts that systemd has read; it reads them again when it is told to
	may     []string          // instances that may start
	wrong   []Problem         // what a preflight finds

	survivors map[string]bool // units of which a process is left when they have stopped
	immortal  bool            // and SIGKILL does not end it
	starting  map[string]bool // units whose start, by somebody else, is under way, and about to be refused
	requests  int
	halting   bool // the host is going down

	dead   bool // whoever acts on it was killed: nothing has an effect any more
	calls  int
	before func(call int, op string) error // may fail a call
	broken map[string]bool                 // texts that do not come up
}

func (h *fakeHost) call(op, name string) error {
	if h.dead {
		return errInjected
	}
	h.calls++
	if h.before == nil {
		return nil
	}
	return h.before(h.calls, op+" "+name)
}

// state is all of a host that a rollback must restore.
type state struct {
	Text, Pending, Active map[string]string
	Boot                  map[string]bool
}

func (h *fakeHost) state() state {
	boot := map[string]bool{}
	for name, on := range h.boot {
		if on {
			boot[name] = true
		}
	}
	return state{maps.Clone(h.text), maps.Clone(h.pending), maps.Clone(h.active), boot}
}

func (h *fakeHost) State(_ context.Context, name string) (systemd.UnitStatus, error) {
	s := systemd.UnitStatus{Name: name, Load: "loaded", Active: "inactive", Sub: "dead"}
	if _, on := h.active[name]; on {
		s.Active, s.Sub, s.ControlGroup = "active", "running", "/system.slice/"+name
	}
	if h.starting[name] {
		s.Active, s.Sub, s.Job = "activating", "start-pre", systemd.Job{ID: 1, Type: "start"}
	}
	return s, h.call("State", name)
}

func (h *fakeHost) Start(_ context.Context, name string) error {
	if err := h.call("Start", name); err != nil {
		return err
	}
	if h.starting[name] { // ours becomes one with it
		delete(h.starting, name)
		return fmt.Errorf("cannot start %q: a swap is under way", name)
	}
	for other := range h.active {
		if other != name {
			return fmt.Errorf("cannot start %q: %s runs", name, other)
		}
	}
	if instance, _ := unitgen.InstanceOf(name); !slices.Contains(h.may, instance) {
		return fmt.Errorf("cannot start %q: a swap is under way", name)
	}
	if h.loaded == nil {
		h.loaded = map[string]string{}
	}
	if _, known := h.loaded[name]; !known {
		h.loaded[name] = h.text[name]
	}
	if h.broken[h.loaded[name]] {
		return fmt.Errorf("cannot start %q: job failed", name)
	}
	h.active[name] = h.loaded[name]
	return nil
}

func (h *fakeHost) Stop(_ context.Context, name string) error {
	if err := h.call("Stop", name); err != nil {
		return err
	}
	delete(h.active, name)
	return nil
}

func (h *fakeHost) Kill(_ context.Context, name string, sig syscall.Signal) error {
	if sig == syscall.SIGKILL && !h.immortal {
		delete(h.survivors, name)
	}
	return h.call("Kill", name)
}

func (h *fakeHost) ResetFailed(_ context.Context, name string) error {
	return h.call("ResetFailed", name)
}

func (h *fakeHost) ReloadIfNeeded(_ context.Context, names ...string) (bool, error) {
	if err := h.call("Reload", ""); err != nil {
		return false, err
	}
	for _, name := range names {
		delete(h.loaded, name)
	}
	return false, nil
}

func (h *fakeHost) Watch(_ context.Context, name string) (<-chan systemd.UnitStatus, error) {
	updates := make(chan systemd.UnitStatus)
	close(updates)
	return updates, h.call("Watch", name)
}

func (h *fakeHost) Stopping(context.Context) (bool, error) { return h.halting, nil }

func (h *fakeHost) Prove(_ context.Context, s unitgen.Section) (string, error) {
	name := unitgen.UnitName(s.Instance)
	if _, on := h.active[name]; !on {
		return "", fmt.Errorf("%s does not run", name)
	}
	return "proven", h.call("Prove", name)
}

func (h *fakeHost) Check(context.Context, *Plan) (string, []Problem, error) {
	return "all well", h.wrong, h.call("Check", "")
}

func (h *fakeHost) AwaitFree(_ context.Context, sections []unitgen.Section, _ func(string)) (string, error) {
	return "free", h.call("AwaitFree", sections[0].Instance)
}

func (h *fakeHost) Clean(_ context.Context, sections []unitgen.Section) (string, error) {
	return "nothing stale", h.call("Clean", sections[0].Instance)
}

func (h *fakeHost) MayStart(instances ...string) error {
	h.may = instances
	return h.call("MayStart", fmt.Sprint(instances))
}

func (h *fakeHost) Members(cgroup string) ([]Member, error) {
	if h.survivors[path.Base(cgroup)] {
		return []Member{{PID: 42, Text: "pid 42 (state D in nv_close)"}}, h.call("Members", cgroup)
	}
	return nil, h.call("Members", cgroup)
}

func (h *fakeHost) Running(context.Context, unitgen.Section) (int, bool) { return h.requests, true }

// files is one of a fakeHost's two directories.
type files struct {
	h    *fakeHost
	op   string
	text map[string]string
}

func (f files) Read(name string) ([]byte, error) {
	text, ok := f.text[name]
	if err := f.h.call("Read"+f.op, name); err != nil || ok {
		return []byte(text), err
	}
	return nil, fs.ErrNotExist
}

func (f files) Keep(name string) error {
	if err := f.h.call("Keep", name); err != nil {
		return err
	}
	if text, ok := f.text[name]; ok {
		f.h.kept[name] = text
	}
	return nil
}

func (f files) PutBack(name string) error {
	text, kept := f.h.kept[name]
	if err := f.h.call("PutBack", name); err != nil || !kept {
		return err
	}
	delete(f.h.kept, name)
	f.text[name] = text
	return nil
}

func (f files) Forget(name string) error {
	delete(f.h.kept, name)
	return f.h.call("Forget", name)
}

func (f files) Write(name string, text []byte) error {
	if err := f.h.call("Write"+f.op, name); err != nil {
		return err
	}
	f.text[name] = string(text)
	return nil
}

func (f files) Remove(name string) error {
	if err := f.h.call("Remove"+f.op, name); err != nil {
		return err
	}
	delete(f.text, name)
	return nil
}

func (f files) Enable(name, _ string) error {
	if err := f.h.call("Enable", name); err != nil {
		return err
	}
	f.h.boot[name] = true
	return nil
}

func (f files) Disable(name, _ string) error {
	if err := f.h.call("Disable", name); err != nil {
		return err
	}
	f.h.boot[name] = false
	return nil
}

// silent is a Progress that says nothing.
type silent struct{}

func (silent) Begin(string)       {}
func (silent) Detail(string)      {}
func (silent) Done(string)        {}
func (silent) Skip(string)        {}
func (silent) Fail(string)        {}
func (silent) Undo(string)        {}
func (silent) Announce(*Plan)     {}
func (silent) Lost(string, error) {}

func (h *fakeHost) runner(t *testing.T) *Runner {
	record, err := Create(t.TempDir(), Entry{Op: "swap", ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(record.Close)
	return &Runner{Systemd: h, Files: files{h, "", h.text}, Pending: files{h, "Pending", h.pending},
		Prover: h, Cgroups: h, Requests: h, Preflight: h, Resources: h, Claims: h, Progress: silent{}, Record: record}
}

var errInjected = errors.New("injected")
