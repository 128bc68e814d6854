package swap

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vllmhost/unitgen"
)

// stopping is a host on which the stop of "old" takes until its processes are gone: its engine ends by itself, its server
// only by SIGKILL, or when its requests are over.
type stopping struct {
	*fakeHost
	mu       sync.Mutex
	engine   bool
	requests []int // what the server says, each time it is asked; the last goes on
	gone     chan struct{}
	once     sync.Once
	killed   time.Time
}

func (h *stopping) end() { h.once.Do(func() { close(h.gone) }) }

func (h *stopping) Stop(ctx context.Context, name string) error {
	select {
	case <-h.gone:
		return h.fakeHost.Stop(ctx, name)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *stopping) Kill(_ context.Context, _ string, sig syscall.Signal) error {
	if sig != syscall.SIGKILL {
		return errors.New("another signal")
	}
	h.killed = time.Now()
	h.end()
	return nil
}

func (h *stopping) Members(string) ([]Member, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.gone:
		return nil, nil
	default:
	}
	members := []Member{{PID: 1}}
	if h.engine {
		members = append(members, Member{PID: 2, Engine: true})
	}
	return members, nil
}

func (h *stopping) Running(context.Context, unitgen.Section) (int, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.requests) == 0 {
		return 0, false
	}
	n := h.requests[0]
	if len(h.requests) > 1 {
		h.requests = h.requests[1:]
	}
	return n, true
}

func (h *stopping) stop(t *testing.T, drain time.Duration) (string, time.Duration) {
	t.Helper()
	r := h.runner(t)
	r.Systemd, r.Cgroups, r.Requests = h, h, h
	began := time.Now()
	detail, err := (&run{Runner: r}).stopAll(t.Context(), []unitgen.Section{{Instance: "old", Port: 8000, DrainTimeout: drain}})
	if err != nil {
		t.Fatal(err)
	}
	return detail, time.Since(began)
}

// A server that is left without its engine has nothing to wait for, and waits: it is not given all of drain_timeout.
func TestServerWithoutItsEngineIsKilled(t *testing.T) {
	t.Parallel()
	h := &stopping{fakeHost: newHost(), engine: true, gone: make(chan struct{})}
	var engineEnded time.Time
	time.AfterFunc(200*time.Millisecond, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.engine, engineEnded = false, time.Now()
	})
	detail, took := h.stop(t, time.Hour)
	if after := h.killed.Sub(engineEnded); h.killed.IsZero() || after < serverGrace {
		t.Errorf("killed %v after its engine ended, want not before %v", after, serverGrace)
	}
	if took > time.Minute || !strings.Contains(detail, "2 processes gone") {
		t.Errorf("%q after %v", detail, took)
	}
}

// One that has its engine, or never had one, is systemd's to end.
func TestDrainingServerIsNotKilled(t *testing.T) {
	t.Parallel()
	for _, engine := range []bool{true, false} {
		h := &stopping{fakeHost: newHost(), engine: engine, gone: make(chan struct{})}
		time.AfterFunc(serverGrace+500*time.Millisecond, h.end)
		if h.stop(t, time.Hour); !h.killed.IsZero() {
			t.Errorf("killed, engine %t", engine)
		}
	}
}

// A stop says what became of the requests that were running.
func TestStopCountsRequests(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		requests []int
		drain    time.Duration
		want     string
	}{
		"all ended":           {[]int{3, 0}, time.Hour, "; 3 requests ended"},
		"one":                 {[]int{1}, time.Hour, "; 1 request ended"},
		"cut":                 {[]int{3, 2}, time.Millisecond, "; 2 of 3 requests cut at drain_timeout (1ms)"},
		"none":                {[]int{0}, time.Hour, " gone"},
		"it does not say":     {nil, time.Hour, " gone"},
		"more came meanwhile": {[]int{2, 5}, time.Millisecond, "; 2 of 2 requests cut at drain_timeout (1ms)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &stopping{fakeHost: newHost(), engine: true, requests: tt.requests, gone: make(chan struct{})}
			time.AfterFunc(countTimeout+300*time.Millisecond, h.end) // after it was asked again
			if detail, _ := h.stop(t, tt.drain); !strings.HasSuffix(detail, tt.want) {
				t.Errorf("got %q, want …%q", detail, tt.want)
			}
		})
	}
}

// Whoever answers on the port of one that only loads is another one: its requests are not counted.
func TestStopOfALoadingOneCountsNothing(t *testing.T) {
	t.Parallel()
	h := &stopping{fakeHost: newHost(), requests: []int{3}, gone: make(chan struct{})}
	clear(h.active)
	h.end()
	if detail, _ := h.stop(t, time.Hour); strings.Contains(detail, "request") {
		t.Errorf("got %q", detail)
	}
}
