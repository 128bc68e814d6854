package main

import (
	"time"
)

// histogram counts values into Prometheus buckets.
type histogram struct {
	bounds []float64
	counts []uint64 // one more than bounds
	sum    float64
}

func newHistogram(bounds []float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}

// stats are what the engine has counted, and the gauges as of its last step. The engine's lock guards them.
type stats struct {
	begin      time.Time
	prompt     int
	generation int
	steps      int
	ended      map[string]int // by finished_reason
	runningNow int
	waitingNow int
	maxRunning int
	kvUsage    float64
	perSecond  []int // tokens in each second since begin

	iteration, ttft, itl, tpot, e2e, queue, inference, prefill, decode *histogram
	promptLength, outputLength, maxTokens                              *histogram
}

func newStats() *stats {
	latency := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	fine := []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	lengths := []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}
	return &stats{
		begin:        time.Now(),
		ended:        map[string]int{},
		iteration:    newHistogram([]float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}),
		ttft:         newHistogram([]float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}),
		itl:          newHistogram(fine),
		tpot:         newHistogram(fine),
		e2e:          newHistogram(latency),
		queue:        newHistogram(latency),
		inference:    newHistogram(latency),
		prefill:      newHistogram(latency),
		decode:       newHistogram(latency),
		promptLength: newHistogram(lengths),
		outputLength: newHistogram(lengths),
		maxTokens:    newHistogram(lengths),
	}
}

// prefilled counts a request that joined in this step.
func (st *stats) prefilled(r *request) {
	st.prompt += r.promptTokens
}

// generated counts one token of r, before r knows of it.
func (st *stats) generated(r *request, now time.Time) {
	st.generation++
	if r.generated == 0 {
		st.ttft.observe(now.Sub(r.sent).Seconds())
	} else {
		st.itl.observe(now.Sub(r.last).Seconds())
	}
}

// stepped counts a step that processed tokens, with one of them new for each of running requests.
func (st *stats) stepped(tokens, running int, now time.Time) {
	st.steps++
	st.iteration.observe(float64(tokens))
	st.maxRunning = max(st.maxRunning, running)
	second := int(now.Sub(st.begin).Seconds())
	for len(st.perSecond) <= second {
		st.perSecond = append(st.perSecond, 0)
	}
	st.perSecond[second] += running
}

func (st *stats) finished(r *request, reason string, now time.Time) {
	st.ended[reason]++
	if r.generated == 0 {
		return
	}
	first := r.joined
	st.e2e.observe(now.Sub(r.sent).Seconds())
	st.queue.observe(0)
	st.inference.observe(now.Sub(first).Seconds())
	st.prefill.observe(first.Sub(r.sent).Seconds())
	st.decode.observe(r.last.Sub(first).Seconds())
	st.promptLength.observe(float64(r.promptTokens))
	st.outputLength.observe(float64(r.generated))
	st.maxTokens.observe(float64(r.maxTokens))
	if r.generated > 1 {
		st.tpot.observe(r.last.Sub(first).Seconds() / float64(r.generated-1))
	}
}
