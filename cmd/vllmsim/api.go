package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// api is the HTTP side of the server.
type api struct {
	s      *server
	names  []string // the model's; the first labels the metrics
	keys   []string
	born   time.Time
	open   atomic.Int64 // generations being answered, for /load
	counts requestCounts
}

// route is one thing the API answers.
type route struct {
	method string
	path   string
	handle func(*api, http.ResponseWriter, *http.Request)
}

// routes are those that the log lists as well.
func routes() []route {
	return []route{
		{"GET", "/load", (*api).load},
		{"GET", "/version", (*api).version},
		{"GET", "/health", (*api).health},
		{"GET", "/metrics", (*api).metrics},
		{"POST", "/tokenize", (*api).tokenize},
		{"GET", "/v1/models", (*api).models},
		{"GET", "/ping", (*api).health},
		{"POST", "/ping", (*api).health},
		{"POST", "/v1/chat/completions", (*api).chatCompletions},
		{"POST", "/v1/completions", (*api).completions},
	}
}

func newAPI(s *server) *api {
	a := &api{s: s, names: s.opt.served, keys: s.opt.apiKeys, born: time.Now(), counts: requestCounts{n: map[requestCount]int{}}}
	if s.set.ModelID != "" {
		a.names = []string{s.set.ModelID}
	}
	if key := os.Getenv("VLLM_API_KEY"); key != "" && len(a.keys) == 0 {
		a.keys = []string{key}
	}
	return a
}

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes() {
		mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) { r.handle(a, w, req) })
	}
	// For tests alone; the real one has nothing like them.
	mux.HandleFunc("POST /__die", func(w http.ResponseWriter, _ *http.Request) { a.s.procs.engine.Process.Kill() })
	mux.HandleFunc("GET /__truth", a.truth)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
	})
	return a.log(a.guard(mux))
}

// guard asks for the key, where there is one, on the paths that the real one guards. All others are open.
func (a *api) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded := false
		for _, prefix := range []string{"/v1", "/v2", "/inference", "/cohere"} {
			guarded = guarded || strings.HasPrefix(r.URL.Path, prefix)
		}
		key, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if guarded && len(a.keys) > 0 && !(bearer && slices.Contains(a.keys, key)) {
			writeJSON(w, http.StatusUnauthorized, map[string]string{"error": "Unauthorized"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// log writes uvicorn's access log: one line when an answer begins.
func (a *api) log(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := &beganWriter{ResponseWriter: w}
		began.begin = func(status int) {
			a.counts.add(r, status)
			if !a.s.opt.noAccessLog && !slices.Contains(a.s.opt.quietPaths, r.URL.Path) {
				client := strings.TrimPrefix(r.RemoteAddr, "@") // a Unix socket has no address
				a.s.log.plain(a.s.speaker("api"), fmt.Sprintf("INFO:     %s - %q %d %s", client,
					r.Method+" "+r.URL.RequestURI()+" HTTP/1.1", status, http.StatusText(status)))
			}
		}
		w.Header().Set("Server", "uvicorn")
		next.ServeHTTP(began, r)
		began.WriteHeader(http.StatusOK) // an empty answer
	})
}

// beganWriter calls begin once, with the status, when the answer begins.
type beganWriter struct {
	http.ResponseWriter
	begin func(status int)
	done  bool
}

func (w *beganWriter) WriteHeader(status int) {
	if w.done {
		return
	}
	w.done = true
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *beganWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

func (w *beganWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// requestCounts counts answers for http_requests_total.
type requestCounts struct {
	mu sync.Mutex
	n  map[requestCount]int
}

type requestCount struct {
	handler, method, status string
	n                       int // 0 as a key
}

func (c *requestCounts) add(r *http.Request, status int) {
	handler := "none"
	if _, path, ok := strings.Cut(r.Pattern, " "); ok {
		handler = path
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[requestCount{handler: handler, method: r.Method, status: fmt.Sprintf("%dxx", status/100)}]++
}

func (c *requestCounts) sorted() []requestCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []requestCount
	for k, n := range c.n {
		k.n = n
		all = append(all, k)
	}
	slices.SortFunc(all, func(x, y requestCount) int {
		return strings.Compare(x.handler+" "+x.method+" "+x.status, y.handler+" "+y.method+" "+y.status)
	})
	return all
}

func (a *api) health(w http.ResponseWriter, _ *http.Request) {
	if a.s.engine.currentState() == dead {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (a *api) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": a.s.rel.version})
}

// load counts only where it was asked to, else it is always 0.
func (a *api) load(w http.ResponseWriter, _ *http.Request) {
	n := int64(0)
	if a.s.opt.countLoad {
		n = a.open.Load()
	}
	writeJSON(w, http.StatusOK, map[string]int64{"server_load": n})
}

func (a *api) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID          string  `json:"id"`
		Object      string  `json:"object"`
		Created     int64   `json:"created"`
		OwnedBy     string  `json:"owned_by"`
		Root        string  `json:"root"`
		Parent      *string `json:"parent"`
		MaxModelLen int     `json:"max_model_len"`
		Permission  []any   `json:"permission"`
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{Object: "list"}
	for _, name := range a.names {
		list.Data = append(list.Data, model{name, "model", time.Now().Unix(), "vllm", a.s.opt.model, nil, a.s.model.maxLen, []any{}})
	}
	writeJSON(w, http.StatusOK, list)
}

func (a *api) tokenize(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Prompt string `json:"prompt"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in); err != nil {
		writeError(w, http.StatusBadRequest, "BadRequestError", "", err.Error())
		return
	}
	n := countTokens(in.Prompt)
	writeJSON(w, http.StatusOK, map[string]any{"count": n, "max_model_len": a.s.model.maxLen, "tokens": make([]int, n), "token_strs": nil})
}

// truth tells a test what really happened, to compare with what a client believes it saw.
func (a *api) truth(w http.ResponseWriter, _ *http.Request) {
	e := a.s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{
		"prompt_tokens": e.stats.prompt, "generation_tokens": e.stats.generation, "steps": e.stats.steps,
		"running": len(e.running), "waiting": len(e.waiting) + len(e.arrived), "max_running": e.stats.maxRunning,
		"ended": e.stats.ended, "tokens_per_second": e.stats.perSecond, "engine_pid": a.s.procs.engineSpeaker().pid,
		"worker_pids": a.s.procs.workerPID,
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// writeError answers in the shape that vLLM's errors have.
func writeError(w http.ResponseWriter, status int, kind, param, message string) {
	type inner struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Param   any    `json:"param"`
		Code    int    `json:"code"`
	}
	writeJSON(w, status, struct {
		Error inner `json:"error"`
	}{inner{message, kind, orNull(param), status}})
}
