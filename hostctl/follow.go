package hostctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"vllmhost/hostctl/gate"
	"vllmhost/hostctl/swap"
	"vllmhost/hostctl/systemd"
)

// Event is what happens in an operation that is followed: a line of its record, or what its present step is doing.
type Event struct {
	Entry  *swap.Entry
	Detail string
}

// lookInterval is how often a record is read that nothing told of a new line of.
const lookInterval = time.Second

// Follow tells what an operation did and does, from its record, until it is over. The operation's unit changes its status
// with each line, which is when the record is read. A cancelled ctx ends the following, not the operation; the error is
// then that of ctx.
func (h *Host) Follow(ctx context.Context, id string, tell func(Event)) (*swap.Plan, swap.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	unit := gate.OperationUnit(id)
	states, err := h.systemd.Watch(ctx, unit)
	if err != nil {
		return nil, swap.Result{}, fmt.Errorf("cannot follow the operation %q: %v", id, err)
	}
	f := &following{host: h, id: id, tell: tell}
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		over, err := f.read()
		if over || err != nil {
			return f.plan, f.result, err
		}
		select {
		case <-ctx.Done():
			return f.plan, swap.Result{}, ctx.Err()
		case <-look.C:
		case state, open := <-states:
			if !open {
				return f.plan, swap.Result{}, errors.Join(ctx.Err(), errFollow(id))
			}
			f.detail(state.StatusText)
			if f.abandoned(state) {
				// Its last line may have come just before.
				if over, err := f.read(); over || err != nil {
					return f.plan, f.result, err
				}
				if why, err := os.ReadFile(h.failedFile(id)); err == nil {
					_ = os.Remove(h.failedFile(id))
					return f.plan, swap.Result{}, fmt.Errorf("%s; %w", why, ErrNotBegun)
				}
				return f.plan, swap.Result{}, &AbandonedError{id}
			}
		}
	}
}

func errFollow(id string) error {
	return fmt.Errorf("cannot follow the operation %q: systemd is gone", id)
}

// AbandonedError says that nobody carries out an operation that is not over.
type AbandonedError struct{ ID string }

func (e *AbandonedError) Error() string {
	return fmt.Sprintf("the operation %s ended without an outcome; its unit is %s", e.ID, gate.OperationUnit(e.ID))
}

// following is the state of a Follow.
type following struct {
	host   *Host
	id     string
	tell   func(Event)
	seen   int // lines of the record that were told
	plan   *swap.Plan
	step   string
	result swap.Result
}

// read tells the new lines of the record, and reports whether the last one has been told.
func (f *following) read() (over bool, err error) {
	entries, err := swap.Read(f.host.records, f.id)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for ; f.seen < len(entries); f.seen++ {
		e := entries[f.seen]
		f.step = e.Step
		if e.State == swap.Undoing {
			f.step = "undo " + e.Step
		}
		if e.Plan != nil {
			f.plan = e.Plan
		}
		f.tell(Event{Entry: &e})
		if e.State.Closed() {
			if e.Result != nil {
				f.result = *e.Result
			}
			return true, nil
		}
	}
	return false, nil
}

// detail tells what the unit says of its present step, as "STEP: TEXT".
func (f *following) detail(status string) {
	if step, text, ok := strings.Cut(status, ": "); ok && (step == f.step || f.step == "") {
		f.tell(Event{Detail: text})
	}
}

// abandoned reports whether the unit is at rest: it neither runs nor is about to.
func (f *following) abandoned(state systemd.UnitStatus) bool {
	return !running(state) && state.Job.ID == 0
}
