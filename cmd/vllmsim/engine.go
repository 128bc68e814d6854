package main

import (
	"slices"
	"sync"
	"time"
)

// maxPrefills is how many requests may join in one step.
const maxPrefills = 4

// engine makes tokens. There is one loop for all requests, because that is what gives a real engine its throughput
// curve: a step takes a fixed time, more for each running request, and more again for each that joins; in it every
// running request gets one token. The engine's process keeps the time, so the loop stands still while that is stopped.
type engine struct {
	s    *server
	wake chan struct{}

	mu      sync.Mutex
	arrived []*request // sent, and not seen by the engine yet: in no gauge
	waiting []*request
	running []*request
	state   engineState
	stats   *stats
	emptied chan struct{} // closed and replaced when nothing is in flight
}

type engineState int

const (
	serving engineState = iota
	draining
	stopped // told to stop; whoever still waits, waits for ever
	dead
)

func newEngine(s *server) *engine {
	e := &engine{s: s, wake: make(chan struct{}, 1), stats: newStats(), emptied: make(chan struct{})}
	go e.loop()
	return e
}

// submit hands a request over. It returns false when the engine takes none any more.
func (e *engine) submit(r *request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != serving {
		return false
	}
	e.arrived = append(e.arrived, r)
	e.nudge()
	return true
}

func (e *engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// abort takes a request whose client is gone out of the next step.
func (e *engine) abort(r *request) {
	r.aborted.Store(true)
	e.nudge()
}

// inFlight is the number of requests that have not ended.
func (e *engine) inFlight() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.arrived) + len(e.waiting) + len(e.running)
}

func (e *engine) currentState() engineState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// enter changes the state, and only ever forward.
func (e *engine) enter(state engineState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state = max(e.state, state)
	e.nudge()
}

// finishAll ends every request with reason.
func (e *engine) finishAll(reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, list := range [][]*request{e.arrived, e.waiting, e.running} {
		for _, r := range list {
			e.end(r, reason)
		}
	}
	e.arrived, e.waiting, e.running = nil, nil, nil
	e.signalEmpty()
}

// empty returns a channel that is closed once nothing is in flight.
func (e *engine) empty() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	ch := e.emptied
	if len(e.arrived)+len(e.waiting)+len(e.running) == 0 {
		e.signalEmpty()
	}
	return ch
}

func (e *engine) signalEmpty() {
	close(e.emptied)
	e.emptied = make(chan struct{})
}

func (e *engine) loop() {
	for {
		if !e.step() {
			<-e.wake
		}
	}
}

// step is one step of the engine. It reports whether there was anything to do.
func (e *engine) step() bool {
	e.mu.Lock()
	if e.state >= stopped || e.hanging() {
		e.mu.Unlock()
		return false
	}
	e.waiting = append(e.waiting, e.arrived...)
	e.arrived = nil
	e.dropAborted()
	joining := e.admit()
	n := len(e.running)
	if n == 0 {
		e.publish()
		e.signalEmpty()
		e.mu.Unlock()
		return false
	}
	set := e.s.set
	d := set.StepBase + time.Duration(n)*set.StepPerSeq + time.Duration(len(joining))*set.StepPerPrefill
	e.mu.Unlock()

	err := e.s.procs.pass(set.scaled(d))

	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil || e.state >= stopped {
		return false // the engine's process is gone; run finds out what that means
	}
	now := time.Now()
	tokens := 0
	for _, r := range joining {
		r.joined = now
		tokens += r.promptTokens
		e.stats.prefilled(r)
	}
	for _, r := range e.running {
		tokens++
		e.stats.generated(r, now)
		if reason := r.emit(now); reason != "" {
			e.end(r, reason)
		}
	}
	e.stats.stepped(tokens, len(e.running), now)
	e.running = slices.DeleteFunc(e.running, func(r *request) bool { return r.ended })
	e.publish()
	return true
}

// hanging reports whether the simulated fault has come: the engine has made its last token.
func (e *engine) hanging() bool {
	return e.s.set.HangAfter >= 0 && e.stats.generation >= e.s.set.HangAfter
}

func (e *engine) dropAborted() {
	drop := func(r *request) bool {
		if r.aborted.Load() {
			e.end(r, "abort")
		}
		return r.ended
	}
	e.waiting = slices.DeleteFunc(e.waiting, drop)
	e.running = slices.DeleteFunc(e.running, drop)
}

// admit moves requests from waiting to running as far as the limits allow, and returns them.
func (e *engine) admit() []*request {
	n := min(maxPrefills, len(e.waiting), e.s.opt.maxNumSeqs-len(e.running))
	if n <= 0 {
		return nil
	}
	joining := slices.Clone(e.waiting[:n])
	e.waiting = slices.Delete(e.waiting, 0, n)
	e.running = append(e.running, joining...)
	return joining
}

// publish sets the gauges; between steps they keep their last value, whatever has happened since.
func (e *engine) publish() {
	e.stats.runningNow, e.stats.waitingNow = len(e.running), len(e.waiting)
	blocks := 0
	for _, r := range e.running {
		blocks += (r.promptTokens + r.generated + e.s.set.BlockSize - 1) / e.s.set.BlockSize
	}
	e.stats.kvUsage = min(1, float64(blocks)/float64(e.s.set.KVBlocks))
}

// end closes a request, once.
func (e *engine) end(r *request, reason string) {
	if r.ended {
		return
	}
	r.ended = true
	r.finish(reason)
	e.stats.finished(r, reason, time.Now())
}
