package swap

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vllmhost/unitgen"
)

var update = flag.Bool("update", false, "write the table in docs/explanation/swap.md")

// killing is a journal that kills its process at one line: from then on nothing has any effect.
type killing struct {
	*Record
	host *fakeHost
	at   func(e Entry, written bool) bool
}

func (k *killing) Write(e Entry) error {
	if !k.host.dead && k.at(e, false) {
		k.host.dead = true
	}
	if k.host.dead {
		return errInjected
	}
	err := k.Record.Write(e)
	if k.at(e, true) {
		k.host.dead = true
	}
	return err
}

// killedSwap runs a swap whose process is killed, and returns the directory of its record.
func killedSwap(t *testing.T, h *fakeHost, plan *Plan, at func(e Entry, written bool) bool) (dir string, killed bool) {
	t.Helper()
	dir = t.TempDir()
	record, err := Create(dir, Entry{Op: "swap", ID: "test", Request: &Request{Names: []string{"new"}}})
	if err != nil {
		t.Fatal(err)
	}
	r := h.runner(t)
	r.Record = &killing{record, h, at}
	r.Run(context.Background(), plan, false)
	record.Close()
	killed, h.dead = h.dead, false
	return dir, killed
}

// resume does what a restarted process does, or after a crash of the host first what is done before anything starts.
func resume(t *testing.T, h *fakeHost, dir string, crash bool) Result {
	t.Helper()
	record, entries, err := Reopen(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	open, ok := OpenOf(entries)
	if !ok {
		t.Fatal("the record is closed")
	}
	r := h.runner(t)
	r.Record = record
	if crash {
		for i := range entries {
			if entries[i].Boot != "" {
				entries[i].Boot = "an earlier one"
			}
		}
		clear(h.active)
		clear(h.loaded)
		if open.Plan != nil {
			if err := r.Repair(context.Background(), open.Plan, open.Forward); err != nil {
				t.Fatal(err)
			}
		}
		for name, on := range h.boot {
			if on {
				h.active[name] = h.text[name]
			}
		}
	}
	return r.Resume(context.Background(), entries, false)
}

// Wherever a swap is killed, it ends proven: with one side serving, and starting at boot, and all texts those of that
// side. What the documentation says of it is what this test sees.
func TestKilledAtEachLine(t *testing.T) {
	next := unitgen.UnitName("new")
	var table strings.Builder
	table.WriteString("| step | when | its process was killed | the host went down |\n|---|---|---|---|\n")
	for _, step := range Steps() {
		var rows []string
		for _, when := range []string{"before its first line", "after its first line", "before its last line", "after its last line"} {
			var outcomes []State
			for _, crash := range []bool{false, true} {
				h := newHost()
				before := h.state()
				dir, killed := killedSwap(t, h, h.plan(t, "new"), func(e Entry, written bool) bool {
					state := map[bool]State{true: Doing, false: Done}[strings.HasSuffix(when, "first line")]
					return e.Step == step.Name && e.State == state && written == strings.HasPrefix(when, "after")
				})
				if !killed {
					t.Fatalf("%s, %s: not killed", step.Name, when)
				}
				res := resume(t, h, dir, crash)
				outcomes = append(outcomes, res.State)
				want := before
				if res.State == Swapped {
					want = state{
						Text:    map[string]string{unitgen.UnitName("old"): unitText("old", "1"), next: unitText("new", "2")},
						Pending: map[string]string{},
						Active:  map[string]string{next: unitText("new", "2")},
						Boot:    map[string]bool{next: true},
					}
				}
				if diff := cmp.Diff(want, h.state()); diff != "" {
					t.Errorf("%s, %s, crash %v: %s (%v), but (-want +got):\n%s", step.Name, when, crash, res.State, res.Undo, diff)
				}
				if len(res.Serves) != 1 || len(h.kept) > 0 {
					t.Errorf("%s, %s, crash %v: %v serves, kept %v", step.Name, when, crash, res.Serves, h.kept)
				}
			}
			rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |\n", step.Name, when, outcomes[0], outcomes[1]))
		}
		// The last two columns, and whether all rows have the same.
		outcome := func(row string) string { return row[strings.Index(row, "line |"):] }
		if !slices.ContainsFunc(rows, func(row string) bool { return outcome(row) != outcome(rows[0]) }) {
			rows = []string{strings.Replace(rows[0], "before its first line", "at any time", 1)}
		}
		table.WriteString(strings.Join(rows, ""))
	}
	const doc, begin, end = "../../docs/explanation/swap.md", "<!-- killed: begin -->\n", "<!-- killed: end -->\n"
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), begin)
	old, tail, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no table between %q and %q", doc, begin, end)
	}
	if *update {
		if err := os.WriteFile(doc, []byte(head+begin+table.String()+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(table.String(), old); diff != "" {
		t.Errorf("%s says something else (-seen +said); to write it: make golden\n%s", doc, diff)
	}
}

// After a crash the boot starts the old side while the swap goes back: at no moment is that start refused, and one that was
// all the same is tried again.
func TestBootStartsTheOldSideMeanwhile(t *testing.T) {
	old := unitgen.UnitName("old")
	h := newHost()
	before := h.state()
	dir, killed := killedSwap(t, h, h.plan(t, "new"), func(e Entry, written bool) bool {
		return e.Step == "start" && e.State == Doing && written
	})
	if !killed {
		t.Fatal("not killed")
	}
	h.may = []string{"old"} // what recovery claims
	h.starting = map[string]bool{old: true}
	h.before = func(_ int, op string) error {
		if !slices.Contains(h.may, "old") {
			t.Errorf("at %q only %q may start", op, h.may)
		}
		return nil
	}
	res := resume(t, h, dir, true)
	if diff := cmp.Diff(before, h.state()); diff != "" || res.State != RolledBack {
		t.Errorf("%s %v (-want +got):\n%s", res.State, res.Undo, diff)
	}
}

// Killed at each call that it makes to the host, and then killed again at each call of what goes on: forward, or back.
func TestKilledAtEachCall(t *testing.T) {
	for _, to := range []string{"new", "old"} { // to another one; of one with itself, with a new definition
		for _, fails := range []bool{false, true} {
			for _, crash := range []bool{false, true} {
				t.Run(fmt.Sprintf("to %s, fails %t, crash %t", to, fails, crash), func(t *testing.T) {
					t.Parallel()
					for first := 1; killedTwice(t, to, fails, crash, first); first++ {
					}
				})
			}
		}
	}
}

// killedTwice returns false when the swap makes no such call any more.
func killedTwice(t *testing.T, to string, fails, crash bool, first int) bool {
	t.Helper()
	for second := 0; ; second++ {
		h := newHost()
		h.pending[unitgen.UnitName(to)] = unitText(to, "2")
		if fails {
			h.broken = map[string]bool{unitText(to, "2"): true}
		}
		before := h.state()
		calls := 0
		kill := func(at int) func(int, string) error {
			calls = 0
			return func(int, string) error {
				if calls++; calls == at {
					h.dead = true
				}
				if h.dead {
					return errInjected
				}
				return nil
			}
		}
		h.before = kill(first)
		dir, killed := killedSwap(t, h, h.plan(t, to), func(Entry, bool) bool { return false })
		if !killed {
			return false
		}
		// Killed again while it goes on, as its second incarnation; 0 lets it live.
		h.before = nil
		if second > 0 {
			record, entries, err := Reopen(dir, "test")
			if err != nil {
				t.Fatal(err)
			}
			r := h.runner(t)
			r.Record = &killing{record, h, func(Entry, bool) bool { return false }}
			h.before = kill(second)
			r.Resume(context.Background(), entries, false)
			record.Close()
			h.before = nil
			if !h.dead {
				return true
			}
			h.dead = false
		}
		res := resume(t, h, dir, crash)
		switch {
		case len(res.Serves) != 1 || len(h.active) != 1 || len(h.state().Boot) != 1:
			t.Errorf("to %s, fails %v, crash %v, killed at calls %d and %d: ended %s (%s; %v), serving %v", to, fails, crash, first, second,
				res.State, res.Error, res.Undo, maps.Clone(h.active))
		case res.State == Swapped && !fails:
		case res.State == RolledBack || res.State == Refused:
			if diff := cmp.Diff(before, h.state()); diff != "" {
				t.Errorf("to %s, fails %v, crash %v, killed at calls %d and %d: %s, but:\n%s", to, fails, crash, first, second, res.State, diff)
			}
		default:
			t.Errorf("to %s, fails %v, crash %v, killed at calls %d and %d: ended %s", to, fails, crash, first, second, res.State)
		}
	}
}

// What kills a swap every time, at the same place, does so for a reason: it goes back, and in the end gives up.
func TestKilledForEver(t *testing.T) {
	h := newHost()
	h.before = func(_ int, op string) error {
		if op == "AwaitFree new" {
			h.dead = true
		}
		if h.dead {
			return errInjected
		}
		return nil
	}
	dir, _ := killedSwap(t, h, h.plan(t, "new"), func(Entry, bool) bool { return false })
	for range maxForward {
		record, entries, err := Reopen(dir, "test")
		if err != nil {
			t.Fatal(err)
		}
		r := h.runner(t)
		r.Record = &killing{record, h, func(Entry, bool) bool { return false }}
		r.Resume(context.Background(), entries, false)
		record.Close()
		h.dead = false
	}
	res := resume(t, h, dir, false)
	if res.State != RolledBack || !strings.Contains(res.Error, "killed 5 times; at step \"release\" the last time") {
		t.Errorf("ended %s: %s", res.State, res.Error)
	}
}
