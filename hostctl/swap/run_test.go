package swap

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// unitText is a unit as vllmhost would write it, as far as a plan looks at it.
func unitText(instance string, extra string) string {
	w := fmt.Sprintf("[Service]\nExecStart=:/bin/vllm %s\n\n[X-Vllmhost]\nFormat=1\nInstance=%s\nPort=8000\nStartTimeout=1h0m0s\n", extra, instance)
	return string(unitgen.Seal([]byte(w)))
}

// newHost is a host on which "old" runs and boots, and "new" waits with a pending definition.
func newHost() *fakeHost {
	old, next := unitgen.UnitName("old"), unitgen.UnitName("new")
	return &fakeHost{
		text:    map[string]string{old: unitText("old", "1"), next: unitText("new", "1")},
		pending: map[string]string{next: unitText("new", "2")},
		kept:    map[string]string{},
		boot:    map[string]bool{old: true},
		active:  map[string]string{old: unitText("old", "1")},
		loaded:  map[string]string{old: unitText("old", "1")},
	}
}

func (h *fakeHost) plan(t *testing.T, names ...string) *Plan {
	t.Helper()
	var facts []Fact
	for _, name := range []string{"new", "old"} {
		unit := unitgen.UnitName(name)
		f := Fact{Text: []byte(h.text[unit]), Enabled: h.boot[unit], Status: systemd.UnitStatus{Active: "inactive"}}
		if _, on := h.active[unit]; on {
			f.Status.Active = "active"
		}
		if p, waits := h.pending[unit]; waits {
			f.Pending = []byte(p)
		}
		var err error
		if f.Section, err = unitgen.ParseSection(f.Text); err != nil {
			t.Fatal(err)
		}
		facts = append(facts, f)
	}
	plan, problems := NewPlan("test", facts, names)
	if len(problems) > 0 {
		t.Fatalf("no plan: %v", problems)
	}
	return plan
}

func TestSwap(t *testing.T) {
	h := newHost()
	res := h.runner(t).Run(context.Background(), h.plan(t, "new"), false)
	if res.State != Swapped || res.Error != "" {
		t.Fatalf("ended %s (%v), want swapped", res.State, res.Error)
	}
	next, old := unitgen.UnitName("new"), unitgen.UnitName("old")
	want := state{
		Text:    map[string]string{old: unitText("old", "1"), next: unitText("new", "2")},
		Pending: map[string]string{},
		Active:  map[string]string{next: unitText("new", "2")},
		Boot:    map[string]bool{next: true},
	}
	if diff := cmp.Diff(want, h.state()); diff != "" {
		t.Errorf("after the swap (-want +got):\n%s", diff)
	}
}

// Every call that a swap makes fails once, on a fresh host each time. Whatever it was, the host ends where it began, and
// the outcome says whether anything was touched.
func TestEveryCallFailsOnce(t *testing.T) {
	for n := 1; ; n++ {
		h := newHost()
		began := h.state()
		plan := h.plan(t, "new")
		failed := ""
		h.before = func(call int, op string) error {
			if call != n {
				return nil
			}
			failed = op
			return errInjected
		}
		res := h.runner(t).Run(context.Background(), plan, false)
		if isTidying(failed) {
			if res.State != Swapped {
				t.Errorf("%s failed: ended %s", failed, res.State)
			}
			continue
		}
		if failed == "" {
			if n < 10 {
				t.Fatalf("only %d calls: the swap does too little to prove anything", n)
			}
			return
		}
		if res.State != RolledBack && res.State != Refused {
			t.Errorf("%s failed: ended %s, undo errors %v", failed, res.State, res.Undo)
		}
		if diff := cmp.Diff(began, h.state()); diff != "" {
			t.Errorf("%s failed: the host is not as it was (-before +after):\n%s", failed, diff)
		}
	}
}

// isTidying reports whether a call only removes what a swap needs while it goes on.
func isTidying(op string) bool {
	return strings.HasPrefix(op, "Forget ") || strings.HasPrefix(op, "RemovePending ")
}

// The same with a cancellation instead of a failure.
func TestCancelledAnywhere(t *testing.T) {
	for n := 1; ; n++ {
		h := newHost()
		began := h.state()
		plan := h.plan(t, "new")
		ctx, cancel := context.WithCancel(context.Background())
		at := ""
		h.before = func(call int, op string) error {
			if call == n {
				at = op
				cancel()
			}
			return nil
		}
		res := h.runner(t).Run(ctx, plan, false)
		cancel()
		if at == "" {
			return
		}
		if isTidying(at) {
			continue // too late
		}
		if res.State == Swapped {
			t.Errorf("cancelled at %s: swapped all the same", at)
		}
		if diff := cmp.Diff(began, h.state()); diff != "" {
			t.Errorf("cancelled at %s: the host is not as it was (-before +after):\n%s", at, diff)
		}
	}
}

func TestOutcomes(t *testing.T) {
	next := unitgen.UnitName("new")
	for _, tt := range []struct {
		name   string
		set    func(*fakeHost)
		calm   bool // nothing is stopped or started
		stay   bool
		names  []string
		want   State
		step   string
		serves string
	}{
		{name: "the new definition does not come up", want: RolledBack, step: "start", serves: "old",
			set: func(h *fakeHost) { h.broken = map[string]bool{h.pending[next]: true} }},
		{name: "nothing served before", want: RolledBack, step: "start", serves: "",
			set: func(h *fakeHost) {
				h.broken = map[string]bool{h.pending[next]: true}
				clear(h.active)
			}},
		{name: "and the old one does not come up again", want: RollbackFailed, step: "start", serves: "",
			set: func(h *fakeHost) {
				h.broken = map[string]bool{h.pending[next]: true, h.text[unitgen.UnitName("old")]: true}
			}},
		{name: "an instance with itself, and its new definition does not come up", names: []string{"old"}, want: RolledBack,
			step: "start", serves: "old", set: func(h *fakeHost) {
				h.pending[unitgen.UnitName("old")] = unitText("old", "2")
				h.broken = map[string]bool{unitText("old", "2"): true}
			}},
		{name: "told to stay", stay: true, want: Stayed, step: "start", serves: "",
			set: func(h *fakeHost) { h.broken = map[string]bool{h.pending[next]: true} }},
		{name: "the instance that serves, with nothing pending", names: []string{"old"}, calm: true, want: Swapped, serves: "old",
			set: func(*fakeHost) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost()
			tt.set(h)
			if tt.names == nil {
				tt.names = []string{"new"}
			}
			calm := true
			h.before = func(_ int, op string) error {
				calm = calm && !strings.HasPrefix(op, "Stop ") && !strings.HasPrefix(op, "Start ")
				return nil
			}
			res := h.runner(t).Run(context.Background(), h.plan(t, tt.names...), tt.stay)
			if res.State != tt.want || res.Step != tt.step {
				t.Errorf("ended %q at step %q, want %q at %q (%v)", res.State, res.Step, tt.want, tt.step, res.Error)
			}
			if calm != tt.calm {
				t.Errorf("nothing was stopped or started: %v, want %v", calm, tt.calm)
			}
			serves := ""
			for name, text := range h.active {
				serves, _ = unitgen.InstanceOf(name)
				if want := unitText(serves, "1"); text != want {
					t.Errorf("%s runs with the definition\n%swant\n%s", serves, text, want)
				}
			}
			if serves != tt.serves {
				t.Errorf("%q serves, want %q", serves, tt.serves)
			}
		})
	}
}

// A process that outlives its unit's stop is killed before anything else starts; one that nothing can end stops the swap.
func TestSurvivors(t *testing.T) {
	old := unitgen.UnitName("old")
	for _, immortal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHost()
			h.survivors, h.immortal = map[string]bool{old: true}, immortal
			res := h.runner(t).Run(context.Background(), h.plan(t, "new"), false)
			switch {
			case !immortal && (res.State != Swapped || h.survivors[old]):
				t.Errorf("ended %s (%v), still there: %v", res.State, res.Error, h.survivors[old])
			case immortal && (res.State == Swapped || !strings.Contains(res.Error, "SIGKILL does not end 1 process: pid 42 (state D in nv_close)")):
				t.Errorf("with a process that SIGKILL does not end: %s, %v", res.State, res.Error)
			}
		})
	}
}

// What a preflight finds is told all at once, and nothing is touched.
func TestRefused(t *testing.T) {
	h := newHost()
	began := h.state()
	h.wrong = []Problem{{"model", "a shard is missing", []string{"look"}}, {"port", "port 8000 is in use", []string{"look"}}}
	touched := ""
	h.before = func(_ int, op string) error {
		if op != "Check " && !isTidying(op) {
			touched = op
		}
		return nil
	}
	res := h.runner(t).Run(context.Background(), h.plan(t, "new"), false)
	if res.State != Refused || res.Step != "preflight" || len(res.Problems) != 2 {
		t.Errorf("ended %q at step %q with %v", res.State, res.Step, res.Problems)
	}
	if hints := (&RefusedError{res.Problems}).Hints(); len(hints) != 1 {
		t.Errorf("hints %q, want each once", hints)
	}
	if diff := cmp.Diff(began, h.state()); diff != "" || touched != "" {
		t.Errorf("touched (%s):\n%s", touched, diff)
	}
}

// What a rollback starts again is what ran: not one that only tried to, nor one that somebody stops.
func TestPlanRestore(t *testing.T) {
	fact := func(name, active, sub string, gpus ...string) Fact {
		f := Fact{Section: unitgen.Section{Instance: name, GPUs: gpus}}
		f.Status.Active, f.Status.Sub = active, sub
		return f
	}
	facts := []Fact{
		fact("checking", "activating", "start-pre", "3"),
		fact("crashed", "activating", "auto-restart", "0"),
		fact("ending", "deactivating", "stop-sigterm", "2"),
		fact("loading", "activating", "start-post", "1"),
		fact("new", "inactive", "dead", "0", "1", "2", "3"),
		fact("serving", "active", "running", "0"),
	}
	plan, problems := NewPlan("test", facts, []string{"new"})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if diff := cmp.Diff([]string{"checking", "crashed", "ending", "loading", "serving"}, instances(plan.Stop)); diff != "" {
		t.Errorf("stops (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"serving", "loading"}, instances(plan.Restore)); diff != "" {
		t.Errorf("restores (-want +got):\n%s", diff)
	}
}

// Three instances that each may use half of a GPU: two of them can run.
func TestPlanCrowd(t *testing.T) {
	half := func(name string, port int, running bool) Fact {
		f := Fact{Section: unitgen.Section{Instance: name, Port: port, GPUs: []string{"0"}, ShareGPUs: true, GPUUtilization: 0.5}}
		if f.Status.Active = "inactive"; running {
			f.Status.Active = "active"
		}
		return f
	}
	facts := []Fact{half("a", 1, true), half("b", 2, true), half("c", 3, false)}
	if _, problems := NewPlan("test", facts, []string{"c"}); len(problems) != 1 || problems[0].ID != "conflict" {
		t.Errorf("which of a and b is to go for c? got %v", problems)
	}
	plan, problems := NewPlan("test", facts, []string{"c", "a"})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if len(plan.Stop) != 1 || plan.Stop[0].Instance != "b" {
		t.Errorf("to have c and a it stops %v, want b", instances(plan.Stop))
	}
	facts[1].Status.Active = "inactive"
	if plan, problems := NewPlan("test", facts, []string{"c"}); len(problems) > 0 || len(plan.Stop) != 0 {
		t.Errorf("c beside a: %v, %v", plan, problems)
	}
}

// The record has a line on disk before each step and after it, and the old texts in its first line.
func TestRecord(t *testing.T) {
	h := newHost()
	dir := t.TempDir()
	r := h.runner(t)
	record, err := Create(dir, Entry{Op: "swap", ID: "ab3k", Units: map[string]string{"vllm-new.service": "old text"}})
	if err != nil {
		t.Fatal(err)
	}
	r.Record = record
	r.Run(context.Background(), h.plan(t, "new"), false)
	path := filepath.Join(dir, "ab3k.jsonl")
	entries, err := Read(dir, "ab3k")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, strings.TrimSpace(e.Step+" "+string(e.State)))
	}
	want := []string{"begun", "plan done"}
	for _, step := range []string{"preflight", "prepare", "stop", "release", "clean", "start", "probe", "promote"} {
		want = append(want, step+" doing", step+" done")
	}
	want = append(want, "swapped")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the record (-want +got):\n%s", diff)
	}
	if entries[0].Units["vllm-new.service"] != "old text" || entries[0].Schema != RecordSchema {
		t.Errorf("first line %+v", entries[0])
	}

	// A crash in the middle of a line loses that line only.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"time":"2026-`); err != nil {
		t.Fatal(err)
	}
	if again, err := Read(dir, "ab3k"); err != nil || len(again) != len(entries) {
		t.Errorf("with a torn last line: %d lines and %v, want %d and no error", len(again), err, len(entries))
	}
}
