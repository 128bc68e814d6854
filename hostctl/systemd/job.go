package systemd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	// pollInterval is how often a wait looks by itself, beside the signals that should make it look.
	pollInterval = 1500 * time.Millisecond

	// signalGrace is how long a signal may lag behind the state it belongs to. Both come over one connection in
	// order, so this only bridges the scheduling of two goroutines.
	signalGrace = 100 * time.Millisecond

	// lastLook bounds the reading of a unit's state after the caller's time is up.
	lastLook = 2 * time.Second
)

// Start starts a unit and waits until its job has ended: for a unit with ExecStartPost= that is when that has. It
// replaces conflicting jobs (mode "replace"). The context carries the deadline. Success means that systemd says "done"
// and the unit, read again, is active; anything else is a *JobError. When the context ends first, the job goes on in
// systemd: stop the unit to end it.
func (c *Client) Start(ctx context.Context, name string) error {
	result, status, err := c.run(ctx, "StartUnit", name, "active")
	switch result {
	case "done", "skipped", "": // "": its end was not seen, and the state decides
		if status.Active == "active" {
			return nil
		}
	}
	return &JobError{Unit: name, Op: "start", Result: result, Status: status, Err: err}
}

// Stop stops a unit and waits until its job has ended. A unit that systemd does not know is a success. Success means
// that the unit, read again, is inactive or failed; anything else is a *JobError. A stop that somebody's start cancels
// is tried once more.
func (c *Client) Stop(ctx context.Context, name string) error {
	result, status, err := c.run(ctx, "StopUnit", name, "inactive")
	if result == "canceled" && !(status.stopped() && status.Job.ID == 0) {
		c.log.Warn("a stop was cancelled, stopping again", "unit", name, "state", status.state())
		result, status, err = c.run(ctx, "StopUnit", name, "inactive")
	}
	if errors.Is(err, ErrNoSuchUnit) || status.stopped() {
		return nil
	}
	return &JobError{Unit: name, Op: "stop", Result: result, Status: status, Err: err}
}

func (s UnitStatus) stopped() bool { return s.Active == "inactive" || s.Active == "failed" }

// QueueStart asks for a unit to be started (mode "replace") and does not wait.
func (c *Client) QueueStart(ctx context.Context, name string) error {
	if _, err := c.queue(ctx, "StartUnit", name); err != nil {
		return &JobError{Unit: name, Op: "start", Err: err}
	}
	return nil
}

// QueueStop asks for a unit to be stopped (mode "replace") and does not wait; so a unit can stop itself. A unit that
// systemd does not know is a success.
func (c *Client) QueueStop(ctx context.Context, name string) error {
	if _, err := c.queue(ctx, "StopUnit", name); err != nil && !errors.Is(err, ErrNoSuchUnit) {
		return &JobError{Unit: name, Op: "stop", Err: err}
	}
	return nil
}

// queue queues a job and returns its object.
func (c *Client) queue(ctx context.Context, method, name string) (job dbus.ObjectPath, err error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	body, err := c.call(ctx, managerPath, managerIface+"."+method, name, "replace")
	if err != nil {
		return "", err
	}
	if err := dbus.Store(body, &job); err != nil {
		return "", fmt.Errorf("cannot understand the answer: %v", err)
	}
	return job, nil
}

// run queues a job, waits for its end, and looks at the unit again: at all of it unless the job is done and the unit
// as wanted. The status is zero where there was no job or the unit cannot be read.
func (c *Client) run(ctx context.Context, method, name, wanted string) (result string, s UnitStatus, err error) {
	w := &jobWatch{removed: make(map[dbus.ObjectPath]removal), woken: make(chan struct{}, 1)}
	c.mu.Lock()
	c.jobs[w] = struct{}{} // before the call: a short job ends before its name is known here
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.jobs, w)
		c.mu.Unlock()
	}()

	job, err := c.queue(ctx, method, name)
	if err != nil {
		return "", UnitStatus{}, err
	}
	w.follow(job)
	result, err = c.wait(ctx, w, name, job)

	look := ctx
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		look, cancel = context.WithTimeout(context.WithoutCancel(ctx), lastLook)
		defer cancel()
	}
	s, lookErr := c.state(look, name)
	if result == "canceled" && lookErr == nil {
		s = c.settled(look, s)
	}
	if lookErr == nil && (result != "done" || s.Active != wanted) {
		s, lookErr = c.unit(look, name)
	}
	if err == nil {
		err = lookErr
	}
	return result, s, err
}

// settled waits a moment for a unit whose job was cancelled to come to rest: a start that a stop cancels ends before the
// stop does, and what became of the unit is seen only then.
func (c *Client) settled(ctx context.Context, s UnitStatus) UnitStatus {
	ctx, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	states, err := c.Watch(ctx, s.Name)
	if err != nil {
		return s
	}
	for s = range states {
		if s.Job.ID == 0 && (s.stopped() || s.Active == "active" || s.Sub == "auto-restart") {
			break
		}
	}
	return s
}

// wait waits for the end of a job and returns its result, or "" if it ended unseen.
func (c *Client) wait(ctx context.Context, w *jobWatch, name string, job dbus.ObjectPath) (string, error) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-w.woken:
		case <-poll.C:
		case <-ctx.Done():
			return "", ctx.Err()
		case <-c.life.Done():
			return "", errClosed
		}
		if result, ok := c.result(ctx, w, job); ok {
			return result, nil
		}
		queued, err := c.isQueued(ctx, name, job)
		if err != nil || queued {
			continue // an error has been met with patience already; the next look may fare better
		}
		select {
		case <-w.woken:
		case <-time.After(signalGrace):
		}
		result, ok := c.result(ctx, w, job)
		if !ok {
			c.log.Debug("a job ended without a signal", "unit", name, "job", job)
		}
		return result, nil
	}
}

// isQueued reports whether a job of a unit has not ended yet.
func (c *Client) isQueued(ctx context.Context, name string, job dbus.ObjectPath) (bool, error) {
	path, err := unitPath(name)
	if err != nil {
		return false, err
	}
	v, err := c.property(ctx, path, unitIface, "Job")
	if err != nil {
		return false, err
	}
	fields, _ := v.([]any)
	if len(fields) != 2 {
		return false, fmt.Errorf("cannot understand the job of %q", name)
	}
	return fields[1] == job, nil
}

// jobWatch collects the ends of jobs for one wait.
type jobWatch struct {
	woken chan struct{} // capacity 1: look again

	mu      sync.Mutex
	job     dbus.ObjectPath // empty until known: then everything is kept
	removed map[dbus.ObjectPath]removal
}

// removal is a JobRemoved signal.
type removal struct{ result, sender string }

// follow says which job the wait is for.
func (w *jobWatch) follow(job dbus.ObjectPath) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.job = job
	if _, ended := w.removed[job]; ended {
		w.wake()
	}
}

func (w *jobWatch) wake() { wake(w.woken) }

// wake makes whoever waits on a channel of capacity 1 look again, and never waits itself.
func wake(woken chan struct{}) {
	select {
	case woken <- struct{}{}:
	default:
	}
}

// jobRemoved hands a signal to every wait that may be for that job.
func (c *Client) jobRemoved(job dbus.ObjectPath, r removal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.jobs {
		w.mu.Lock()
		if w.job == "" || w.job == job {
			w.removed[job] = r
			w.wake()
		}
		w.mu.Unlock()
	}
}

// result returns the result of a job if a signal told it. On the bus anybody may send such a signal to us, whatever we
// asked the bus for; only systemd's counts.
func (c *Client) result(ctx context.Context, w *jobWatch, job dbus.ObjectPath) (string, bool) {
	w.mu.Lock()
	r, ok := w.removed[job]
	delete(w.removed, job)
	w.mu.Unlock()
	if !ok {
		return "", false
	}
	l := c.current()
	if l == nil {
		return "", false
	}
	if l.direct {
		return r.result, true
	}
	var owner string
	err := l.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, busName).Store(&owner)
	return r.result, err == nil && owner == r.sender
}
