package hostctl

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vllmhost/hostctl/swap"
)

// keepRecords is how many records of operations are kept. Those of open operations, and the one that a rollback would go
// back from, are kept beyond that.
const keepRecords = 200

// Operation is an operation as its record tells it.
type Operation struct {
	ID      string       `json:"id"`
	Op      string       `json:"op"`    // apply, swap, rollback
	State   swap.State   `json:"state"` // the outcome, or how far it is
	Summary string       `json:"summary"`
	User    string       `json:"user,omitempty"`
	Began   time.Time    `json:"began"`
	Ended   time.Time    `json:"ended,omitzero"`
	Result  *swap.Result `json:"result,omitempty"`
	Entries []swap.Entry `json:"-"`
}

// Open reports whether it goes on.
func (o Operation) Open() bool { return !o.State.Closed() }

// History returns all operations, the newest first, and what lies among their records and is none.
func (h *Host) History() (all []Operation, strange []error, err error) {
	ids, err := h.recordIDs()
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		o, err := h.Operation(id)
		var notOurs *swap.NotRecordError
		switch {
		case errors.As(err, &notOurs):
			strange = append(strange, err)
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			return nil, nil, err
		default:
			all = append(all, o)
		}
	}
	return all, strange, nil
}

// Operation reads the record of one operation; an unknown one is fs.ErrNotExist.
func (h *Host) Operation(id string) (Operation, error) {
	entries, err := swap.Read(h.records, id)
	if err != nil {
		return Operation{}, err
	}
	first, last := entries[0], entries[len(entries)-1]
	o := Operation{ID: id, Op: first.Op, State: last.State, Began: first.Time, Result: last.Result, Entries: entries}
	if open, ok := swap.OpenOf(entries); ok {
		o.State = swap.State("at " + open.Step)
	} else {
		o.Ended = last.Time
	}
	o.Summary, o.User = summary(entries)
	return o, nil
}

// summary says what an operation is about, and who asked for it.
func summary(entries []swap.Entry) (text, user string) {
	first := entries[0]
	if first.Request == nil {
		var units []string
		for unit := range first.Units {
			units = append(units, unit)
		}
		slices.Sort(units)
		return strings.Join(units, ", "), ""
	}
	open, _ := swap.OpenOf(entries)
	return open.Summary(), first.Request.User
}

// open returns the operations that did not end, the newest first. Records that are none of ours are passed over.
func (h *Host) open() ([]swap.Open, error) {
	ids, err := h.recordIDs()
	if err != nil {
		return nil, err
	}
	var all []swap.Open
	for _, id := range ids {
		if closed, err := swap.Closed(h.records, id); err == nil && closed {
			continue
		}
		entries, err := swap.Read(h.records, id)
		var notOurs *swap.NotRecordError
		if errors.As(err, &notOurs) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if o, ok := swap.OpenOf(entries); ok {
			all = append(all, o)
		}
	}
	return all, nil
}

// recordIDs lists the records, the last that ended first, by the times of their files. See ended.
func (h *Host) recordIDs() ([]string, error) {
	entries, err := os.ReadDir(h.records)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	type record struct {
		id   string
		time time.Time
	}
	var found []record
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".jsonl")
		if !ok || id == "" || id[0] == '.' {
			continue
		}
		if info, err := e.Info(); err == nil {
			found = append(found, record{id, info.ModTime()})
		}
	}
	slices.SortStableFunc(found, func(a, b record) int { return cmp.Or(b.time.Compare(a.time), strings.Compare(a.id, b.id)) })
	ids := make([]string, len(found))
	for i, r := range found {
		ids[i] = r.id
	}
	return ids, nil
}

// ended makes a record that was just closed the newest of all, also where the clock was set back since another was. The
// host's lock is held, so that they are closed one after the other.
func (h *Host) ended(id string) error {
	entries, err := os.ReadDir(h.records)
	if err != nil {
		return fmt.Errorf("cannot list the records: %v", err)
	}
	file := h.recordFile(id)
	var own, newest time.Time
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil: // removed meanwhile
		case e.Name() == filepath.Base(file):
			own = info.ModTime()
		case info.ModTime().After(newest):
			newest = info.ModTime()
		}
	}
	if own.After(newest) {
		return nil
	}
	newest = newest.Add(time.Millisecond)
	if err := os.Chtimes(file, newest, newest); err != nil {
		return fmt.Errorf("cannot order the records: %v", err)
	}
	return nil
}

// interrupted closes the record of an apply that was killed halfway: each file was replaced whole, and the next apply
// does the rest.
func (h *Host) interrupted(id string) {
	record, _, err := swap.Reopen(h.records, id)
	if err != nil {
		return
	}
	defer record.Close()
	_ = record.Write(swap.Entry{State: swap.Interrupted, Error: "killed; the next apply does the rest",
		Result: &swap.Result{State: swap.Interrupted}})
}

// forgetOld removes the oldest records. A failure does not matter: the next operation tries again.
func (h *Host) forgetOld() {
	ids, err := h.recordIDs()
	if err != nil || len(ids) <= keepRecords {
		return
	}
	good, _ := h.lastGood()
	for _, id := range ids[keepRecords:] {
		closed, err := swap.Closed(h.records, id)
		if err == nil && closed && id != good {
			_ = os.Remove(h.recordFile(id))
		}
	}
}

// lastGood is the newest swap or rollback that moved the host to another side, or "".
func (h *Host) lastGood() (string, error) {
	o, err := h.newest(func(o Operation) bool { return o.State == swap.Swapped && o.plan() != nil })
	return o.ID, err
}

// newest returns the newest operation that is wanted, or none.
func (h *Host) newest(wanted func(Operation) bool) (Operation, error) {
	ids, err := h.recordIDs()
	if err != nil {
		return Operation{}, err
	}
	for _, id := range ids {
		if o, err := h.Operation(id); err == nil && wanted(o) {
			return o, nil
		}
	}
	return Operation{}, nil
}

func (o Operation) plan() *swap.Plan {
	open, _ := swap.OpenOf(o.Entries)
	return open.Plan
}

// LastTimes returns the newest swap to the same instances that succeeded, or nil.
func (h *Host) LastTimes(p *swap.Plan) (*Operation, error) {
	o, err := h.newest(func(o Operation) bool {
		plan := o.plan()
		return o.State == swap.Swapped && o.ID != p.ID && plan != nil && slices.Equal(instances(plan.Starts()), instances(p.Starts()))
	})
	if err != nil || o.ID == "" {
		return nil, err
	}
	return &o, nil
}

// Steps returns how long each step took, in the order they began; those of the way back are named "undo STEP". A step
// that was interrupted counts from its first begin.
func (o Operation) Steps() []StepTime {
	var steps []StepTime
	began := map[string]time.Time{}
	for _, e := range o.Entries {
		name := e.Step
		if e.State == swap.Undoing || e.State == swap.Undone {
			name = "undo " + e.Step
		}
		switch e.State {
		case swap.Doing, swap.Undoing:
			if _, again := began[name]; !again {
				began[name] = e.Time
			}
		case swap.Done, swap.Failed, swap.Undone:
			at, known := began[name]
			if !known {
				if at, known = began["undo "+name]; !known {
					continue
				}
				name = "undo " + name
			}
			steps = append(steps, StepTime{Step: name, State: e.State, Seconds: max(0, e.Time.Sub(at).Seconds()), Text: cmp.Or(e.Error, e.Detail)})
			delete(began, name)
		}
	}
	return steps
}

// StepTime is one step in the timeline of an operation.
type StepTime struct {
	Step    string     `json:"step"`
	State   swap.State `json:"state"`   // done, failed, undone
	Seconds float64    `json:"seconds"` // by the host's clock
	Text    string     `json:"text,omitempty"`
}
