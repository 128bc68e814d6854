package hostctl

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vllmhost/hostctl/gate"
	"vllmhost/hostctl/swap"
	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// note makes the record of a swap that ended so, from one instance to another, with that time on its file.
func (s *stage) note(id, from, to string, outcome swap.State, at time.Time) {
	s.t.Helper()
	w := &worker{Host: s.Host, id: id, progress: silent{}}
	plan := &swap.Plan{
		New:     []swap.Target{{Section: unitgen.Section{Instance: to, Port: 8000}}},
		Restore: []unitgen.Section{{Instance: from, Port: 8000}},
	}
	var err error
	w.record, err = s.record(swap.Entry{Op: opSwap, ID: id, Request: &swap.Request{Names: []string{to}, User: "root"}})
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.record.Close()
	entries := []swap.Entry{{Step: "plan", State: swap.Done, Plan: plan}, {Step: "stop", State: swap.Doing}}
	if outcome.Closed() {
		entries = append(entries, swap.Entry{State: outcome, Result: &swap.Result{State: outcome}})
	}
	for _, e := range entries {
		if err := w.Write(e); err != nil {
			s.t.Fatal(err)
		}
	}
	if !at.IsZero() {
		if err := os.Chtimes(s.recordFile(id), at, at); err != nil {
			s.t.Fatal(err)
		}
	}
}

// silent is a WorkProgress that says nothing.
type silent struct{}

func (silent) Begin(string)           {}
func (silent) Detail(string)          {}
func (silent) Done(string)            {}
func (silent) Skip(string)            {}
func (silent) Fail(string)            {}
func (silent) Undo(string)            {}
func (silent) Announce(*swap.Plan)    {}
func (silent) Recorded(swap.Entry)    {}
func (silent) Lost(_ string, _ error) {}

func (s *stage) ids() []string {
	s.t.Helper()
	all, strange, err := s.History()
	if err != nil || len(strange) > 0 {
		s.t.Fatal(err, strange)
	}
	var ids []string
	for _, o := range all {
		ids = append(ids, o.ID)
	}
	return ids
}

// A clock that was set back by a year changes neither the order of operations nor what a rollback goes back from.
func TestOrderWithoutAClock(t *testing.T) {
	s := newStage(t)
	s.note("aaaa", "one", "two", swap.Swapped, time.Now().AddDate(1, 0, 0)) // while the clock was wrong
	s.note("bbbb", "two", "three", swap.Swapped, time.Time{})
	s.note("cccc", "three", "four", swap.RolledBack, time.Time{})
	if got := s.ids(); !slices.Equal(got, []string{"cccc", "bbbb", "aaaa"}) {
		t.Errorf("the newest first: got %q", got)
	}
	if last, err := s.LastSwap(); err != nil || last.ID != "bbbb" {
		t.Errorf("a rollback would go back from %q, %v; want bbbb", last.ID, err)
	}
}

// What is no record of ours is told, and never taken for one.
func TestForeignRecords(t *testing.T) {
	s := newStage(t)
	s.note("aaaa", "one", "two", swap.Swapped, time.Time{})
	put := func(name, text string, mode os.FileMode) {
		path := filepath.Join(s.records, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(s.recordFile("aaaa"))
	if err != nil {
		t.Fatal(err)
	}
	open := strings.Join(strings.SplitAfter(string(text), "\n")[:3], "") // without its outcome
	put("eeee.jsonl", "not JSON\n", 0o600)
	put("ffff.jsonl", strings.ReplaceAll(open, "aaaa", "ffff"), 0o666) // anybody may have written it
	put("gggg.jsonl", open, 0o600)                                     // of another operation
	put("notes.txt", "mine", 0o600)
	if err := os.Symlink("aaaa.jsonl", filepath.Join(s.records, "hhhh.jsonl")); err != nil {
		t.Fatal(err)
	}
	all, strange, err := s.History()
	if err != nil || len(all) != 1 || len(strange) != 4 {
		t.Fatalf("got %d operations, %v, %v; want one, and four that are none", len(all), strange, err)
	}
	told := ""
	for _, err := range strange {
		told += err.Error() + "\n"
	}
	for _, want := range []string{`eeee.jsonl": it does not begin as one`, `ffff.jsonl": others than root may have written it`,
		`gggg.jsonl": it does not begin as one`, `hhhh.jsonl": it is a symbolic link`} {
		if !strings.Contains(told, want) {
			t.Errorf("%q is not told:\n%s", want, told)
		}
	}
	if open, err := s.UnderWay(); err == nil {
		t.Errorf("%q is taken for one that goes on", open.ID)
	}
}

// The last 200 are kept, and beyond them what is still needed: open ones, and the one that a rollback goes back from.
func TestRetention(t *testing.T) {
	s := newStage(t)
	began := time.Now().Add(-time.Hour)
	at := func(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }
	s.note("open", "one", "two", "", at(0))
	s.note("good", "one", "two", swap.Swapped, at(1))
	for n := range keepRecords + 20 {
		s.note(fmt.Sprintf("r%03d", n), "one", "two", swap.Refused, at(2+n))
	}
	s.forgetOld()
	ids, err := s.recordIDs()
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) != keepRecords+2 || !slices.Contains(ids, "open") || !slices.Contains(ids, "good") || slices.Contains(ids, "r019") ||
		ids[0] != "r219" {
		t.Errorf("%d are kept: %q", len(ids), ids)
	}
}

// A unit that runs is told from its file by the text it was started with; times only count where that is not known.
func TestNewer(t *testing.T) {
	s := newStage(t)
	text := unitgen.Seal([]byte("[X-Vllmhost]\nFormat=1\nInstance=a\n"))
	path := filepath.Join(s.root, unitDir, "vllm-a.service")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	future := time.Now().AddDate(1, 0, 0)
	if err := os.Chtimes(path, future, future); err != nil {
		t.Fatal(err)
	}
	nobody := func(gate.Start) (bool, error) { return false, nil }
	none := func(gate.Operation) (bool, error) { return false, nil }
	yes := func([]gate.Start, []gate.Operation) error { return nil }
	start := gate.Start{Section: unitgen.Section{Instance: "a"}, InvocationID: "1", Hash: unitgen.Hash(text)}
	if err := s.Claims().Take(start, nobody, none, yes); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, invocation string
		text             []byte
		want             bool
	}{
		{"as it was started, whatever the clock says", "1", text, false},
		{"another text", "1", append(text, '#'), true},
		{"a start that nobody noted", "2", text, true},
	} {
		f := swap.Fact{Section: start.Section, Text: tt.text,
			Status: systemd.UnitStatus{InvocationID: tt.invocation, ActiveSince: time.Now()}}
		if got, err := s.newer(f); err != nil || got != tt.want {
			t.Errorf("%s: got %t, %v, want %t", tt.name, got, err, tt.want)
		}
	}
}

// One that was begun just before the host went down, and had no plan, is not carried out by the next boot: nobody waits for
// it any more, and what serves is just being started.
func TestBegunBeforeTheBoot(t *testing.T) {
	for boot, want := range map[string]string{"an earlier one": "killed before anything was touched", swap.BootID(): `instance "b" has no unit`} {
		s := newStage(t)
		record, err := s.record(swap.Entry{Op: opSwap, ID: "aaaa", Request: &swap.Request{Names: []string{"b"}, User: "root"}})
		if err != nil {
			t.Fatal(err)
		}
		record.Close()
		path := s.recordFile("aaaa")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), swap.BootID(), boot)), 0o600); err != nil {
			t.Fatal(err)
		}
		res, err := s.Work(t.Context(), "aaaa", silent{})
		if err != nil || res.State != swap.Refused || !strings.Contains(res.Error, want) {
			t.Errorf("of boot %q: %s (%s), %v; want refused: %s", boot, res.State, res.Error, err, want)
		}
	}
}

func TestIDsAreNew(t *testing.T) {
	s := newStage(t)
	for range 50 {
		s.note(s.newID(), "one", "two", swap.Refused, time.Time{})
	}
	if free(s.recordFile(s.ids()[0])) {
		t.Error("a record is taken for none")
	}
}
