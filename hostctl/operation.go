package hostctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"vllmhost/hostctl/gate"
	"vllmhost/hostctl/swap"
)

// Begin writes down what is asked for, as the operation ID, and has systemd start the unit that carries it out. It does
// not wait: see [Host.Follow].
func (h *Host) Begin(ctx context.Context, req swap.Request) (id string, err error) {
	if err := h.mustBeRoot("swap"); err != nil {
		return "", err
	}
	id, req.User = h.newID(), userName()
	data, err := json.Marshal(req)
	if err != nil {
		return "", fmt.Errorf("cannot write the request: %v", err)
	}
	if err := gate.MakeRunDir(h.runDir()); err != nil {
		return "", err
	}
	if err := os.MkdirAll(h.requests(), 0o700); err != nil {
		return "", fmt.Errorf("cannot write the request: %v", err)
	}
	if err := renameio.WriteFile(h.requestFile(id), data, 0o600); err != nil {
		return "", fmt.Errorf("cannot write the request: %v", err)
	}
	if err := h.systemd.QueueStart(ctx, gate.OperationUnit(id)); err != nil {
		_ = os.Remove(h.requestFile(id))
		return "", fmt.Errorf("cannot start the operation: %w", err)
	}
	return id, nil
}

// newID returns an ID that no operation has: of four characters, one of two hundred records is met every few thousand times.
func (h *Host) newID() string {
	for {
		id := swap.NewID()
		if free(h.recordFile(id)) && free(h.requestFile(id)) {
			return id
		}
	}
}

func free(path string) bool {
	_, err := os.Lstat(path)
	return err != nil
}

// ErrNothingUnderWay says that there is no operation to follow or to cancel.
var ErrNothingUnderWay = errors.New("no swap is under way")

// UnderWay returns the swap or rollback that goes on, or ErrNothingUnderWay.
func (h *Host) UnderWay() (swap.Open, error) {
	open, err := h.open()
	if err != nil {
		return swap.Open{}, err
	}
	for _, o := range open {
		if o.Op != opApply {
			return o, nil
		}
	}
	return swap.Open{}, ErrNothingUnderWay
}

// Cancel makes an operation go back. It does not wait for that.
func (h *Host) Cancel(ctx context.Context, id string) error {
	if err := h.mustBeRoot("cancel a swap"); err != nil {
		return err
	}
	// On disk as well as by signal: its process may be just being started again.
	if err := os.MkdirAll(h.requests(), 0o700); err != nil {
		return fmt.Errorf("cannot cancel %q: %v", id, err)
	}
	if err := os.WriteFile(h.cancelFile(id), nil, 0o600); err != nil {
		return fmt.Errorf("cannot cancel %q: %v", id, err)
	}
	unit := gate.OperationUnit(id)
	if err := h.systemd.Kill(ctx, unit, syscall.SIGINT); err != nil {
		return err
	}
	// One that nobody carries out any more is taken up again, to go back.
	return h.systemd.QueueStart(ctx, unit)
}

// The names of operations in records.
const (
	opApply    = "apply"
	opSwap     = "swap"
	opRollback = "rollback"
)

func (h *Host) runDir() string               { return filepath.Dir(h.lockPath) }
func (h *Host) requests() string             { return filepath.Join(h.runDir(), "requests") }
func (h *Host) recordFile(id string) string  { return filepath.Join(h.records, id+".jsonl") }
func (h *Host) requestFile(id string) string { return filepath.Join(h.requests(), id+".json") }
func (h *Host) cancelFile(id string) string  { return filepath.Join(h.requests(), id+".cancel") }
func (h *Host) failedFile(id string) string  { return filepath.Join(h.requests(), id+".failed") }

// ErrNotBegun says that an operation could not be begun: it has no record, and nothing was touched.
var ErrNotBegun = errors.New("nothing was touched")

// WorkProgress is told what an operation does, as it does it.
type WorkProgress interface {
	swap.Progress
	Recorded(e swap.Entry) // a line of the record is on disk; this comes before the call that tells of the same
}

// Work carries out an operation, or goes on with one that was interrupted, to its end. It runs in the operation's own
// unit. A cancelled ctx makes it go back. With an error the operation is still open, and can be taken up again.
func (h *Host) Work(ctx context.Context, id string, progress WorkProgress) (swap.Result, error) {
	record, entries, err := h.recordOf(id)
	if err != nil {
		return swap.Result{}, err
	}
	defer record.Close()
	if _, open := swap.OpenOf(entries); !open {
		return *entries[len(entries)-1].Result, nil
	}
	w := &worker{Host: h, id: id, request: *entries[0].Request, op: entries[0].Op, record: record, progress: progress}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := os.Stat(h.cancelFile(id)); err == nil {
		cancel()
	}
	res, err := w.work(ctx, entries)
	if err != nil {
		return res, err
	}
	_ = os.Remove(h.cancelFile(id))
	h.forgetOld()
	return res, nil
}

// ErrNotAsked says that there is no such operation: neither a record nor a request.
var ErrNotAsked = errors.New("nobody asked for it")

// recordOf opens the record of an operation, or begins it from what was asked for.
func (h *Host) recordOf(id string) (*swap.Record, []swap.Entry, error) {
	if strings.ContainsAny(id, "/.") {
		return nil, nil, fmt.Errorf("cannot carry out %q: %w", id, ErrNotAsked)
	}
	record, entries, err := swap.Reopen(h.records, id)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return record, entries, err
	}
	data, err := os.ReadFile(h.requestFile(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("cannot carry out %q: %w", id, ErrNotAsked)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot carry out %q: %v", id, err)
	}
	var req swap.Request
	if err := json.Unmarshal(data, &req); err != nil {
		return nil, nil, fmt.Errorf("cannot carry out %q: %v", id, err)
	}
	first := swap.Entry{Op: opSwap, ID: id, Request: &req, State: swap.Begun}
	if req.Back != "" {
		first.Op = opRollback
	}
	record, err = h.record(first)
	_ = os.Remove(h.requestFile(id))
	if err != nil {
		// Without a record, as on a full disk, there is another place to leave word for whoever follows: memory.
		_ = renameio.WriteFile(h.failedFile(id), []byte(err.Error()), 0o600)
		return nil, nil, fmt.Errorf("%v; %w", err, ErrNotBegun)
	}
	return record, []swap.Entry{first}, nil
}

// worker carries out one operation.
type worker struct {
	*Host
	id, op   string
	request  swap.Request
	record   *swap.Record
	progress WorkProgress
}

// resumeWait is how long an operation that was interrupted waits for the lock: whoever has it finds the open record and
// gives it up.
const resumeWait = 10 * time.Minute

// maxEarly is how often an operation is begun anew that was killed before it had a plan.
const maxEarly = 4

func (w *worker) work(ctx context.Context, entries []swap.Entry) (swap.Result, error) {
	open, _ := swap.OpenOf(entries)
	resumed := open.Plan != nil
	wait := w.request.WaitLock
	lockCtx := ctx
	if resumed {
		wait, lockCtx = resumeWait, context.WithoutCancel(ctx)
	}
	lock, err := w.lock(lockCtx, Holder{Op: w.op, ID: w.id, User: w.request.User, Summary: "-> " + strings.Join(w.request.Names, ", ")}, wait,
		func(other *LockedError) { w.progress.Detail("waiting: " + other.Error()) })
	if err != nil {
		if resumed {
			return swap.Result{}, err
		}
		return w.refuse(err)
	}
	defer lock.release()
	claims := &swapClaims{claims: w.Claims(), op: gate.Operation{ID: w.id, Skip: w.request.Skip}}
	runner := swap.Runner{
		Systemd: w.systemd, Files: w.units, Pending: w.pending,
		Prover: gate.Prover{Systemd: w.systemd}, Cgroups: cgroups{}, Requests: requests{},
		Preflight: preflight{gate.Preflight{Systemd: w.systemd, GPUs: w.GPUs()}, w.request.Skip}, Resources: resources{w.Host, w.request.Skip},
		Claims: claims, Progress: lockedProgress{w.progress, lock}, Record: w,
	}
	// Killed before there was a plan: as long as somebody may be waiting, which is until the next boot, it is made now.
	sameBoot := open.Boot == "" || open.Boot == swap.BootID()
	begun := len(entries) == 1 && sameBoot
	early := open.Plan == nil && len(entries) > 1 && sameBoot && open.Resumed < maxEarly
	if early {
		if err := w.Write(swap.Entry{State: swap.Resumed, Boot: open.Boot, Step: "plan"}); err != nil {
			return swap.Result{}, err
		}
	}
	if !begun && !early {
		if resumed {
			claims.op.Summary, claims.op.Sections = open.Plan.Summary(), open.Plan.Sections()
			// A start that is just under way, of the process before this one or of the boot, is not to meet a closed door.
			held, _ := w.Claims().Held(w.id)
			claims.op.MayStart = held.MayStart
			if err := claims.hold(); err != nil {
				return swap.Result{}, err
			}
		}
		defer claims.drop()
		res := runner.Resume(ctx, entries, w.request.Stay)
		return res, over(res)
	}
	plan, err := w.claimSwap(ctx, claims, w.id, w.request)
	if err != nil {
		claims.drop()
		return w.refuse(err)
	}
	lock.summary(plan.Summary())
	res := runner.Run(ctx, plan, w.request.Stay)
	if err := over(res); err != nil {
		return res, err // the next boot needs no claim, and until then nothing is to start
	}
	claims.drop()
	return res, nil
}

// ErrHalting says that the host is going down in the middle of an operation: the next boot goes on with it.
var ErrHalting = errors.New("the host is going down; the next boot goes on")

func over(res swap.Result) error {
	if res.State == "" {
		return ErrHalting
	}
	return nil
}

// refuse ends an operation before it had a plan.
func (w *worker) refuse(cause error) (swap.Result, error) {
	res := swap.Result{State: swap.Refused, Step: "plan", Error: cause.Error()}
	var refused *swap.RefusedError
	var locked *LockedError
	switch {
	case errors.As(cause, &refused):
		res.Problems = refused.Problems
	case errors.As(cause, &locked):
		res.Locked = true
	}
	return res, w.Write(swap.Entry{State: res.State, Step: res.Step, Error: res.Error, Result: &res})
}

// Write makes a worker the journal of its swap.
func (w *worker) Write(e swap.Entry) error {
	if err := w.record.Write(e); err != nil {
		return err
	}
	if e.State.Closed() {
		_ = w.ended(w.id) // what it is about is the order of the list
	}
	w.progress.Recorded(e)
	return nil
}
