package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// event is what tests read of a chunk of either kind.
type event struct {
	Object  string
	Choices []struct {
		Text         string
		Delta        struct{ Role, Content string }
		FinishReason *string `json:"finish_reason"`
	}
	Usage *usage
}

func readEvents(t *testing.T, lines []string) []event {
	t.Helper()
	if len(lines) == 0 || lines[len(lines)-1] != "[DONE]" {
		t.Fatalf("the stream does not end with [DONE]: %q", lines)
	}
	var events []event
	for _, line := range lines[:len(lines)-1] {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		events = append(events, e)
	}
	return events
}

func TestCompletionStream(t *testing.T) {
	t.Parallel()
	s := ready(t, nil)
	events := readEvents(t, s.stream("/v1/completions",
		`{"model":"tiny","prompt":"1, 2, 3, 4, 5, 6, 7, 8,","max_tokens":16,"stream":true,"stream_options":{"include_usage":true}}`).rest(t))
	text, n := "", len(events)
	for i, e := range events[:n-1] {
		text += e.Choices[0].Text
		if last := i == n-2; (e.Choices[0].FinishReason != nil) != last {
			t.Errorf("chunk %d of %d: finish_reason given: %v", i, n-1, !last)
		}
	}
	if want := " 9, 10, 11, 12, 13, 14, 15, 16,"; text != want {
		t.Errorf("text %q, want %q", text, want)
	}
	if reason := *events[n-2].Choices[0].FinishReason; reason != "length" {
		t.Errorf("finish_reason %q", reason)
	}
	if u := events[n-1]; len(u.Choices) != 0 || u.Usage == nil || *u.Usage != (usage{16, 32, 16}) {
		t.Errorf("usage chunk %+v", u)
	}
}

func TestChatStream(t *testing.T) {
	t.Parallel()
	s := ready(t, nil)
	events := readEvents(t, s.stream("/v1/chat/completions",
		`{"messages":[{"role":"user","content":[{"type":"text","text":"Reply with the word OK"}]}],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`).rest(t))
	if first := events[0].Choices[0].Delta; first.Role != "assistant" || first.Content != "" {
		t.Errorf("first delta %+v, want only the role", first)
	}
	if u := events[0].Usage; u == nil || u.Completion != 0 {
		t.Errorf("usage of the first chunk %+v, want 0 tokens", u)
	}
	text := ""
	for _, e := range events[:len(events)-1] {
		text += e.Choices[0].Delta.Content
		if e.Object != "chat.completion.chunk" || e.Usage == nil {
			t.Errorf("chunk %+v", e)
		}
	}
	if text != "OK" {
		t.Errorf("text %q", text)
	}
}

func TestWholeAnswers(t *testing.T) {
	t.Parallel()
	s := ready(t, nil)
	status, body := s.call("POST", "/v1/completions", `{"prompt":"apple -> apple\nriver -> river\n3f9a77c2 ->","max_tokens":64,"stop":["\n"],"logprobs":1}`)
	var answer struct {
		Choices []struct {
			Text         string
			FinishReason string `json:"finish_reason"`
			StopReason   string `json:"stop_reason"`
			Logprobs     struct {
				Values []float64 `json:"token_logprobs"`
			}
		}
		Usage usage
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if c := answer.Choices[0]; c.Text != " 3f9a77c2" || c.FinishReason != "stop" || c.StopReason != "\n" || len(c.Logprobs.Values) != answer.Usage.Completion {
		t.Errorf("answer %s", body)
	}
	// Token ids work as a prompt; with no limit given, 16 tokens come.
	if status, body := s.call("POST", "/v1/completions", `{"prompt":[1,2,3]}`); status != 200 || !strings.Contains(body, `"prompt_tokens":3,"total_tokens":19,"completion_tokens":16`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestModelsVersionLoad(t *testing.T) {
	t.Parallel()
	s := prepare(t, []string{"VLLM_API_KEY=sesame"}, "serve", "--max-model-len", "2k")
	s.cmd.Args = append(s.cmd.Args, "--served-model-name", "kimi-k2.5", "default")
	s.launch().untilReady()
	status, body := s.call("GET", "/v1/models", "", "Authorization", "Bearer sesame")
	for _, want := range []string{`"id":"kimi-k2.5"`, `"id":"default"`, `"root":"` + s.path("model") + `"`, `"max_model_len":2000`} {
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("models: %d, no %s in %s", status, want, body)
		}
	}
	for _, tt := range []struct {
		method, path, key string
		status            int
		body              string
	}{
		{"GET", "/v1/models", "", 401, `{"error":"Unauthorized"}`},
		{"POST", "/v1/completions", "wrong", 401, `{"error":"Unauthorized"}`},
		{"GET", "/health", "", 200, ""},
		{"POST", "/ping", "", 200, ""},
		{"GET", "/version", "", 200, `{"version":"0.32.0"}`},
		{"GET", "/load", "", 200, `{"server_load":0}`},
		{"GET", "/is_paused", "", 404, `{"detail":"Not Found"}`},
	} {
		status, body := s.call(tt.method, tt.path, "{}", "Authorization", "Bearer "+tt.key)
		if status != tt.status || strings.TrimSpace(body) != tt.body {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, status, body, tt.status, tt.body)
		}
	}
}

func TestRequestErrors(t *testing.T) {
	t.Parallel()
	s := ready(t, []string{"VLLMSIM_MODEL_ID=somebody-else"}, "serve", "--max-model-len", "100")
	for _, tt := range []struct {
		body, want string
		status     int
	}{
		{`{"model":"tiny","prompt":"x"}`, "The model `tiny` does not exist. Valid aliases: somebody-else.", 404},
		{`{"prompt":"x","max_tokens":200}`, "This model's maximum context length is 100 tokens and your request has 1 input tokens", 400},
		{`{"prompt":"` + strings.Repeat(" x", 200) + `"}`, "However, your request has 200 input tokens", 400},
		{`{"prompt":""`, "unexpected EOF", 400},
		{`{"prompt":["a","b"]}`, "no batches", 400},
	} {
		status, body := s.call("POST", "/v1/completions", tt.body)
		if status != tt.status || !strings.Contains(body, tt.want) || !strings.HasPrefix(body, `{"error":{"message":`) {
			t.Errorf("%.60s: %d %s, want %d %s", tt.body, status, body, tt.status, tt.want)
		}
	}
}

var metricPattern = regexp.MustCompile(`(?m)^(\S+?)(?:\{.*\})? (\S+)$`)

// metrics sums each series over its labels.
func (s *sim) metrics() map[string]float64 {
	s.t.Helper()
	_, body := s.call("GET", "/metrics", "")
	sums := map[string]float64{}
	for _, m := range metricPattern.FindAllStringSubmatch(body, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			s.t.Fatalf("%s: %v", m[0], err)
		}
		sums[m[1]] += v
	}
	return sums
}

// What clients are told they got is exactly what the server counted, also when chunks hold several tokens.
func TestUsageEqualsCounters(t *testing.T) {
	t.Parallel()
	s := ready(t, []string{"VLLMSIM_STEP_BASE=0", "VLLMSIM_STEP_PER_PREFILL=0"}, "serve", "--max-num-seqs", "8", "--disable-uvicorn-access-log")
	var wg sync.WaitGroup
	var mu sync.Mutex
	tokens, chunks := 0, 0
	for i := range 20 {
		st := s.stream("/v1/completions", fmt.Sprintf(`{"prompt":"Story %d","max_tokens":200,"min_tokens":200,"stream":true,"stream_options":{"include_usage":true}}`, i))
		wg.Go(func() {
			events := readEvents(t, st.rest(t))
			mu.Lock()
			defer mu.Unlock()
			tokens += events[len(events)-1].Usage.Completion
			chunks += len(events) - 1
		})
	}
	wg.Wait()
	m := s.metrics()
	if tokens != 4000 || m["vllm:generation_tokens_total"] != 4000 {
		t.Errorf("clients got %d tokens, server counted %v, want 4000", tokens, m["vllm:generation_tokens_total"])
	}
	if chunks > tokens {
		t.Errorf("%d chunks for %d tokens", chunks, tokens)
	}
	for name, want := range map[string]float64{
		"vllm:request_success_total": 20, "vllm:num_requests_running": 0, "vllm:num_requests_waiting": 0, "vllm:engine_sleep_state": 1,
		"vllm:iteration_tokens_total_sum": 4000 + m["vllm:prompt_tokens_total"], "vllm:time_to_first_token_seconds_count": 20,
		"vllm:request_generation_tokens_sum": 4000, "vllm:cache_config_info": 1,
	} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	truth := s.truth()
	if got := int(m["vllm:iteration_tokens_total_count"]); got != truth.Steps || truth.MaxRunning != 8 {
		t.Errorf("%d iterations counted, %d steps made, at most %d at once; want 8", got, truth.Steps, truth.MaxRunning)
	}
}

// A client that goes away frees its place.
func TestDisconnectAborts(t *testing.T) {
	t.Parallel()
	s := ready(t, []string{"VLLMSIM_STEP_BASE=10ms"})
	st := s.stream("/v1/completions", `{"prompt":"x","max_tokens":5000,"ignore_eos":true,"stream":true}`)
	st.next(t)
	if got := s.metrics()["vllm:num_requests_running"]; got != 1 {
		t.Errorf("running %v, want 1", got)
	}
	st.cancel()
	for deadline := time.Now().Add(testTimeout); s.truth().Ended["abort"] != 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the request was not aborted")
		}
	}
}

// A stopped engine: healthy, silent, every figure frozen, and a request sent meanwhile is in none of them.
func TestStoppedEngine(t *testing.T) {
	for _, who := range []string{"engine", "worker"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			s := ready(t, nil)
			pid := s.truth().EnginePID
			if who == "worker" {
				pid = s.truth().WorkerPIDs[0]
			}
			syscall.Kill(pid, syscall.SIGSTOP)
			st := s.stream("/v1/completions", `{"prompt":"x","max_tokens":3,"stream":true}`)
			time.Sleep(150 * time.Millisecond)
			if len(st.lines) > 0 {
				t.Error("a stopped engine makes tokens")
			}
			if status, _ := s.call("GET", "/health", ""); status != 200 {
				t.Errorf("health %d, want 200", status)
			}
			if m := s.metrics(); m["vllm:num_requests_running"] != 0 || m["vllm:num_requests_waiting"] != 0 || m["vllm:iteration_tokens_total_count"] != 0 {
				t.Errorf("running %v, waiting %v, want the frozen 0", m["vllm:num_requests_running"], m["vllm:num_requests_waiting"])
			}
			syscall.Kill(pid, syscall.SIGCONT)
			if events := st.rest(t); events[len(events)-1] != "[DONE]" {
				t.Errorf("after SIGCONT: %q", events)
			}
		})
	}
}

func TestHangAfter(t *testing.T) {
	t.Parallel()
	s := ready(t, []string{"VLLMSIM_HANG_AFTER=5"})
	st := s.stream("/v1/completions", longStream)
	for range 3 {
		st.next(t)
	}
	time.Sleep(150 * time.Millisecond)
	if got := s.truth().Generation; got != 5 {
		t.Errorf("%d tokens made, want 5", got)
	}
	if status, _ := s.call("GET", "/health", ""); status != 200 {
		t.Errorf("health %d, want 200", status)
	}
}

func TestNeverListen(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"VLLMSIM_NEVER_LISTEN=1"})
	s.saw("Application startup complete.")
	time.Sleep(100 * time.Millisecond)
	if !refused(s.port) || !s.running() {
		t.Error("listens, or ended")
	}
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	s := ready(t, nil, "serve", "--disable-access-log-for-endpoints", "/metrics,/load")
	s.call("GET", "/metrics", "")
	s.call("GET", "/nowhere?x=1", "")
	s.saw(`"GET /nowhere?x=1 HTTP/1.1" 404 Not Found`)
	if strings.Contains(s.text(), "/metrics HTTP") {
		t.Error("a silenced path is logged")
	}
}
