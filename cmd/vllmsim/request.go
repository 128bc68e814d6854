package main

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// token is a piece of text with what the engine claims to have thought of it.
type token struct {
	text    string
	logprob float64
}

// request is one generation on its way through the engine. The engine appends tokens, the handler takes them; a slow
// handler finds several at once, which is why there are fewer chunks than tokens.
type request struct {
	promptTokens int
	maxTokens    int
	minTokens    int
	ignoreEOS    bool
	stop         []string
	writer       *writer

	// The engine's own, under its lock.
	sent, joined, last time.Time
	generated          int
	ended              bool
	aborted            atomic.Bool

	mu         sync.Mutex
	pending    []token
	tail       string // end of the text, as far as stop strings reach
	reason     string // why it ended, empty before
	stopReason string // the stop string that ended it
	more       chan struct{}
}

func newRequest() *request {
	return &request{sent: time.Now(), more: make(chan struct{}, 1)}
}

// emit makes the next token. It returns why the request has ended, or "". The reason goes out together with the token.
func (r *request) emit(now time.Time) string {
	text, logprob, eos := r.writer.next()
	r.generated++
	r.last = now
	early := r.generated <= r.minTokens
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.notify()
	if eos && !r.ignoreEOS && !early {
		r.reason = "stop"
		return r.reason
	}
	if cut, s := r.findStop(text); s != "" && !early {
		text, r.stopReason, r.reason = text[:cut], s, "stop"
	} else if r.generated >= r.maxTokens {
		r.reason = "length"
	}
	r.pending = append(r.pending, token{text, logprob})
	return r.reason
}

// findStop looks for a stop string that text completes, and says how much of text stays. A part of the stop string that
// came with earlier tokens has been sent already.
func (r *request) findStop(text string) (cut int, found string) {
	whole := r.tail + text
	longest := 0
	for _, s := range r.stop {
		longest = max(longest, len(s))
		if i := strings.Index(whole, s); s != "" && i >= 0 {
			return max(0, i-len(r.tail)), s
		}
	}
	r.tail = whole[max(0, len(whole)-longest):]
	return 0, ""
}

// finish tells the handler that nothing more comes, unless it has been told.
func (r *request) finish(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason == "" {
		r.reason = reason
		r.notify()
	}
}

func (r *request) notify() {
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// take returns what came since the last call, and why the request has ended if it has.
func (r *request) take() (tokens []token, reason, stopReason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tokens, r.pending = r.pending, nil
	return tokens, r.reason, r.stopReason
}
