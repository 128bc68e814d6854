package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
)

// metricsWriter writes the Prometheus text format the way Python's client does: sorted labels, values as floats, a
// _created series for everything that counts.
type metricsWriter struct {
	w      io.Writer
	labels []string // on every series: engine="0", model_name="x"
	born   float64
}

func (m *metricsWriter) head(name, kind, help string) {
	fmt.Fprintf(m.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (m *metricsWriter) series(name string, value float64, labels ...string) {
	all := slices.Concat(m.labels, labels)
	slices.Sort(all)
	if len(all) > 0 {
		name += "{" + strings.Join(all, ",") + "}"
	}
	fmt.Fprintf(m.w, "%s %s\n", name, pyFloat(value))
}

func (m *metricsWriter) gauge(name, help string, value float64) {
	m.head(name, "gauge", help)
	m.series(name, value)
}

// split writes one metric with a label that takes several values.
func (m *metricsWriter) split(name, kind, help, label string, values ...any) {
	m.head(name, kind, help)
	for i := 0; i < len(values); i += 2 {
		m.series(name, values[i+1].(float64), fmt.Sprintf("%s=%q", label, values[i]))
	}
	if kind == "counter" {
		created := strings.TrimSuffix(name, "_total") + "_created"
		m.head(created, "gauge", help)
		for i := 0; i < len(values); i += 2 {
			m.series(created, m.born, fmt.Sprintf("%s=%q", label, values[i]))
		}
	}
}

func (m *metricsWriter) counter(name, help string, value int) {
	m.head(name, "counter", help)
	m.series(name, float64(value))
	created := strings.TrimSuffix(name, "_total") + "_created"
	m.head(created, "gauge", help)
	m.series(created, m.born)
}

func (m *metricsWriter) histogram(name, help string, h *histogram) {
	m.head(name, "histogram", help)
	var n uint64
	for i, c := range h.counts {
		n += c
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = pyFloat(h.bounds[i])
		}
		m.series(name+"_bucket", float64(n), fmt.Sprintf("le=%q", bound))
	}
	m.series(name+"_count", float64(n))
	m.series(name+"_sum", h.sum)
	m.head(name+"_created", "gauge", help)
	m.series(name+"_created", m.born)
}

// pyFloat prints v like Python: a whole number with ".0".
func pyFloat(v float64) string {
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(s, ".eInN") {
		s += ".0"
	}
	return s
}

func (a *api) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
	var b strings.Builder
	if !a.s.opt.noStats {
		a.engineMetrics(&b)
	}
	a.processMetrics(&b)
	io.WriteString(w, b.String())
}

func (a *api) engineMetrics(w io.Writer) {
	e := a.s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	st := e.stats
	m := &metricsWriter{w: w, labels: []string{`engine="0"`, fmt.Sprintf("model_name=%q", a.names[0])}, born: float64(st.begin.UnixMicro()) / 1e6}
	m.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", float64(st.runningNow))
	m.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", float64(st.waitingNow))
	m.split("vllm:num_requests_waiting_by_reason", "gauge", "Number of waiting requests by reason.", "reason",
		"capacity", float64(st.waitingNow), "deferred", 0.0)
	m.split("vllm:engine_sleep_state", "gauge", "Engine sleep state.", "sleep_state", "awake", 1.0, "weights_offloaded", 0.0, "discard_all", 0.0)
	m.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", st.kvUsage)
	m.counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", st.prompt)
	m.counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", 0)
	m.counter("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", 0)
	m.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.", st.prompt)
	m.counter("vllm:prompt_tokens_cached_total", "Number of cached prompt tokens (local + external).", 0)
	m.counter("vllm:generation_tokens_total", "Number of generation tokens processed.", st.generation)
	var ended []any
	for _, reason := range []string{"stop", "length", "abort", "error", "repetition"} {
		ended = append(ended, reason, float64(st.ended[reason]))
	}
	m.split("vllm:request_success_total", "counter", "Count of successfully processed requests.", "finished_reason", ended...)
	m.histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.", st.promptLength)
	m.histogram("vllm:request_generation_tokens", "Number of generation tokens processed.", st.outputLength)
	m.histogram("vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", st.iteration)
	m.histogram("vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.", st.maxTokens)
	m.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", st.ttft)
	m.histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", st.itl)
	m.histogram("vllm:request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", st.tpot)
	m.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", st.e2e)
	m.histogram("vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", st.queue)
	m.histogram("vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", st.inference)
	m.histogram("vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", st.prefill)
	m.histogram("vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", st.decode)
	a.cacheConfig(m)
}

// cacheConfig is the size of the KV cache, which lives in labels.
func (a *api) cacheConfig(m *metricsWriter) {
	set := a.s.set
	m = &metricsWriter{w: m.w, labels: []string{`engine="0"`}}
	m.head("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	m.series("vllm:cache_config_info", 1,
		fmt.Sprintf(`block_size="%d"`, set.BlockSize), `cache_dtype="auto"`, `enable_prefix_caching="True"`,
		fmt.Sprintf("gpu_memory_utilization=%q", a.s.opt.gpuShare),
		fmt.Sprintf("kv_cache_max_concurrency=%q", pyFloat(float64(a.s.kvTokens())/float64(a.s.model.maxLen))),
		fmt.Sprintf(`kv_cache_size_tokens="%d"`, a.s.kvTokens()),
		fmt.Sprintf(`num_gpu_blocks="%d"`, set.KVBlocks))
}

func (a *api) processMetrics(w io.Writer) {
	fds, _ := os.ReadDir("/proc/self/fd")
	m := &metricsWriter{w: w}
	m.gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", float64(a.born.UnixMicro())/1e6)
	m.gauge("process_open_fds", "Number of open file descriptors.", float64(len(fds)))
	m.head("http_requests_total", "counter", "Total number of requests by method, status and handler.")
	for _, c := range a.counts.sorted() {
		m.series("http_requests_total", float64(c.n), fmt.Sprintf("handler=%q", c.handler), fmt.Sprintf("method=%q", c.method), fmt.Sprintf("status=%q", c.status))
	}
}
