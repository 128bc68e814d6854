package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"vllmhost/hostctl/ports"
	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// fakeSystemd knows units by name and counts the stops it is asked for.
type fakeSystemd struct {
	mu    sync.Mutex
	units map[string]systemd.UnitStatus
	stops []string

	changes []func(*systemd.UnitStatus) // what a watch sees
}

func (f *fakeSystemd) Unit(_ context.Context, name string) (systemd.UnitStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, known := f.units[name]
	if !known {
		return systemd.UnitStatus{Name: name, Load: "not-found", Active: "inactive"}, nil
	}
	return u, nil
}

func (f *fakeSystemd) State(ctx context.Context, name string) (systemd.UnitStatus, error) {
	return f.Unit(ctx, name)
}

func (f *fakeSystemd) Definition(ctx context.Context, name string) (string, []string, error) {
	u, err := f.Unit(ctx, name)
	return u.Load, u.DropIns, err
}

func (f *fakeSystemd) List(_ context.Context, patterns ...string) ([]systemd.UnitStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []systemd.UnitStatus
	for _, u := range f.units {
		if matches, _ := filepath.Match(patterns[0], u.Name); matches {
			all = append(all, u)
		}
	}
	return all, nil
}

// Watch gives the present state, then what changes makes of it, one after the other.
func (f *fakeSystemd) Watch(ctx context.Context, name string) (<-chan systemd.UnitStatus, error) {
	u, _ := f.Unit(ctx, name)
	states := make(chan systemd.UnitStatus, 1+len(f.changes))
	states <- u
	for _, change := range f.changes {
		change(&u)
		states <- u
	}
	close(states)
	return states, nil
}

func (f *fakeSystemd) QueueStop(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stops = append(f.stops, name)
	return nil
}

// bench is what a guard runs against.
type bench struct {
	t       *testing.T
	dir     string
	systemd *fakeSystemd
	holders []ports.Holder
	gpus    *fakeGPUs
	visible string // CUDA_VISIBLE_DEVICES
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, dir: t.TempDir(), systemd: &fakeSystemd{units: map[string]systemd.UnitStatus{}}, gpus: &fakeGPUs{n: 2}}
}

// add makes a unit of ours with more lines for its [X-Vllmhost] section.
func (b *bench) add(instance, active, sub string, lines ...string) {
	b.t.Helper()
	unit := unitgen.UnitName(instance)
	path := filepath.Join(b.dir, unit)
	text := "[X-Vllmhost]\nFormat=1\nInstance=" + instance + "\n" + strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(path, unitgen.Seal([]byte(text)), 0o644); err != nil {
		b.t.Fatal(err)
	}
	section, err := unitgen.ParseSection([]byte(text))
	if err != nil {
		b.t.Fatal(err)
	}
	argv := []string{"vllm", "serve", section.Model}
	if section.Port != 0 {
		argv = append(argv, "--port", fmt.Sprint(section.Port))
	}
	b.systemd.units[unit] = systemd.UnitStatus{Name: unit, Active: active, Sub: sub, FragmentPath: path, InvocationID: "id-of-" + instance,
		ExecStart: argv}
}

func (b *bench) claims() Claims { return Claims{Dir: filepath.Join(b.dir, "run")} }

func (b *bench) guard(instance string) (status string, err error) {
	var mu sync.Mutex
	g := Guard{
		Hook: Hook{Systemd: b.systemd, Log: slog.New(slog.DiscardHandler), Notify: func(s string) {
			mu.Lock()
			defer mu.Unlock()
			status = s
		}},
		Claims:  b.claims(),
		GPUs:    b.gpus,
		Holders: func(unitgen.Section) ([]ports.Holder, error) { return b.holders, nil },
	}
	err = g.Run(context.Background(), instance, Environment{InvocationID: "id-of-" + instance, VisibleGPUs: b.visible})
	return status, err
}

func TestGuard(t *testing.T) {
	holder := ports.Holder{Socket: ports.Socket{Addr: netip.MustParseAddrPort("0.0.0.0:8000"), State: ports.Bound, Inode: 1}}
	for _, tt := range []struct {
		name    string
		set     func(*bench)
		refused string // "" when it may start
		hint    string
	}{
		{name: "alone"},
		{name: "another runs on another port, without GPUs", set: func(b *bench) { b.add("b", "active", "running", "Port=9000") }},
		{name: "another runs on the same port", refused: "vllm-b.service runs, and both use port 8000", hint: "vllmhost swap a",
			set: func(b *bench) { b.add("b", "active", "running", "Port=8000") }},
		{name: "another loads on the same port", refused: "both use port 8000", hint: "vllmhost swap a",
			set: func(b *bench) { b.add("b", "activating", "start-post", "Port=8000") }},
		{name: "another waits for its restart", refused: "both use port 8000", hint: "vllmhost swap a",
			set: func(b *bench) { b.add("b", "activating", "auto-restart", "Port=8000") }},
		{name: "another still stops", refused: "both use port 8000", hint: "vllmhost swap a",
			set: func(b *bench) { b.add("b", "deactivating", "stop-sigterm", "Port=8000") }},
		{name: "another is stopped", set: func(b *bench) { b.add("b", "inactive", "dead", "Port=8000") }},
		{name: "another has failed", set: func(b *bench) { b.add("b", "failed", "failed", "Port=8000") }},
		{name: "a foreign unit of such a name runs", set: func(b *bench) {
			path := filepath.Join(b.dir, "foreign")
			if err := os.WriteFile(path, []byte("[Service]\n"), 0o644); err != nil {
				b.t.Fatal(err)
			}
			b.systemd.units["vllm-f.service"] = systemd.UnitStatus{Name: "vllm-f.service", Active: "active", FragmentPath: path}
		}},
		{name: "the port is held", refused: "port 8000 is in use: 0.0.0.0:8000 bound", hint: "ss -tlnp 'sport = :8000'",
			set: func(b *bench) { b.holders = []ports.Holder{holder} }},
		{name: "a drop-in moves it to another port", refused: ": --port is 9, the definition says 8000", hint: "systemctl cat vllm-a.service",
			set: func(b *bench) { b.setArgv("a", "vllm", "serve", "", "--port", "9") }},
		{name: "a swap of it is under way, which stops it at the moment", refused: "swap ab3k (a -> b) is under way", hint: "vllmhost swap a, when it is over",
			set: func(b *bench) { b.operation("b", "a", "b") }},
		{name: "a swap that needs its port is under way", refused: "swap ab3k (a -> b) is under way", hint: "vllmhost swap a, when it is over",
			set: func(b *bench) { b.add("c", "inactive", "dead", "Port=8000"); b.operation("c", "c") }},
		{name: "a swap that starts it is under way", set: func(b *bench) { b.operation("a", "a", "b") }},
		{name: "a swap of others is under way", set: func(b *bench) { b.add("c", "inactive", "dead", "Port=1"); b.operation("c", "c") }},
		{name: "a swap that is over", set: func(b *bench) { b.operation("b", "a", "b"); b.bury() }},
		{name: "a swap that is about to be taken up again", refused: "swap ab3k (a -> b) is under way", hint: "vllmhost swap a, when it is over",
			set: func(b *bench) { b.operation("b", "a", "b"); b.revive() }},
		{name: "its own unit is not ours", refused: "not written by vllmhost", set: func(b *bench) {
			if err := os.WriteFile(filepath.Join(b.dir, "vllm-a.service"), []byte("[Service]\n"), 0o644); err != nil {
				b.t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.add("a", "activating", "start-pre", "Port=8000")
			if tt.set != nil {
				tt.set(b)
			}
			status, err := b.guard("a")
			if tt.refused == "" {
				if err != nil || len(b.systemd.stops) != 0 {
					t.Fatalf("refused (%v), stops %v", err, b.systemd.stops)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Fatalf("error %v, want %q", err, tt.refused)
			}
			if len(b.systemd.stops) != 1 || b.systemd.stops[0] != "vllm-a.service" {
				t.Errorf("stops %v: a refused unit must be stopped, or Restart= tries it again", b.systemd.stops)
			}
			var refusal *Refusal
			if errors.As(err, &refusal) && refusal.Hint != tt.hint {
				t.Errorf("hint %q, want %q", refusal.Hint, tt.hint)
			}
			if !strings.HasPrefix(status, "STATUS=Refused: ") || !strings.Contains(status, tt.hint) {
				t.Errorf("systemctl status says %q", status)
			}
		})
	}
}

func (b *bench) setArgv(instance string, argv ...string) {
	u := b.systemd.units[unitgen.UnitName(instance)]
	u.ExecStart = argv
	b.systemd.units[u.Name] = u
}

// operation is a swap of instances that is starting one of them.
func (b *bench) operation(starts string, instances ...string) {
	b.t.Helper()
	o := Operation{ID: "ab3k", Summary: "a -> b", MayStart: []string{starts}}
	b.systemd.units[OperationUnit("ab3k")] = systemd.UnitStatus{Name: OperationUnit("ab3k"), Active: "active", Sub: "running"}
	for _, name := range instances {
		o.Sections = append(o.Sections, unitgen.Section{Instance: name, Port: 8000})
		if name == "c" {
			o.Sections[len(o.Sections)-1].Port = b.port(name)
		}
	}
	if err := b.claims().Hold(o); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) port(instance string) int {
	section, _, _, err := (&Hook{Systemd: b.systemd}).loaded(b.t.Context(), unitgen.UnitName(instance))
	if err != nil {
		b.t.Fatal(err)
	}
	return section.Port
}

// bury ends the operation's unit.
func (b *bench) bury() { b.systemd.set(OperationUnit("ab3k"), "inactive", "") }

// revive has the operation's unit wait for systemd to start it again.
func (b *bench) revive() {
	u := b.systemd.units[OperationUnit("ab3k")]
	u.Active, u.Job = "inactive", systemd.Job{ID: 1, Type: "start"}
	b.systemd.units[u.Name] = u
}

// Of instances that conflict and start at the same instant, exactly one goes on.
func TestGuardAtTheSameInstant(t *testing.T) {
	b := newBench(t)
	const n = 8
	for i := range n {
		b.add(fmt.Sprintf("i%d", i), "activating", "start-pre", "Port=8000")
	}
	errs := make(chan error, n)
	for i := range n {
		go func() {
			_, err := b.guard(fmt.Sprintf("i%d", i))
			errs <- err
		}()
	}
	passed := 0
	for range n {
		if err := <-errs; err == nil {
			passed++
		}
	}
	if passed != 1 {
		t.Errorf("%d of %d may start, want exactly one", passed, n)
	}
}

// A claim ends with the start it was made for.
func TestClaimEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(*fakeSystemd)
		ok   bool
	}{
		{"it still loads", func(*fakeSystemd) {}, false},
		{"it failed", func(f *fakeSystemd) { f.set("vllm-b.service", "failed", "id-of-b") }, true},
		{"it was stopped", func(f *fakeSystemd) { delete(f.units, "vllm-b.service") }, true},
		{"it is another start's", func(f *fakeSystemd) { f.set("vllm-b.service", "activating", "another") }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.add("a", "activating", "start-pre", "AllGPUs=yes", "Port=1")
			b.add("b", "activating", "start-pre", "AllGPUs=yes", "Port=2")
			if _, err := b.guard("b"); err != nil {
				t.Fatal(err)
			}
			tt.then(b.systemd)
			if _, err := b.guard("a"); (err == nil) != tt.ok {
				t.Errorf("then a may start: %v (%v), want %v", err == nil, err, tt.ok)
			}
		})
	}
}

func (f *fakeSystemd) set(unit, active, invocation string) {
	u := f.units[unit]
	u.Active, u.InvocationID = active, invocation
	f.units[unit] = u
}

func TestTakeEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"LD_PRELOAD": "/tmp/evil.so", "PATH": "/tmp", "HOME": "/tmp", "PYTHONPATH": "/tmp",
		"MAINPID": "7", "INVOCATION_ID": "i", "VLLM_API_KEY": "secret", "NOTIFY_SOCKET": "/run/notify",
	} {
		t.Setenv(name, value)
	}
	got := TakeEnvironment()
	if got != (Environment{MainPID: "7", InvocationID: "i", APIKey: "secret"}) {
		t.Errorf("took %+v", got)
	}
	left := os.Environ()
	if len(left) == 0 || len(left) > 2 {
		t.Errorf("left in the environment: %q", left)
	}
	for _, entry := range left {
		if name, _, _ := strings.Cut(entry, "="); name != "NOTIFY_SOCKET" && name != "JOURNAL_STREAM" {
			t.Errorf("%s is left in the environment", name)
		}
	}
}
