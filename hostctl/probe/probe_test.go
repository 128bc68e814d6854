package probe_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"vllmhost/hostctl/probe"
)

// engine is a server that answers as vLLM does; its fields make it answer otherwise.
type engine struct {
	names       []string
	key         string
	noText      bool // completions are not found
	noChat      bool
	tokens      int
	health      int
	asked       []string
	connections atomic.Int32
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.asked = append(e.asked, r.Method+" "+r.URL.Path)
	if strings.HasPrefix(r.URL.Path, "/v1/") && e.key != "" && r.Header.Get("Authorization") != "Bearer "+e.key {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"error":"Unauthorized"}`)
		return
	}
	answer := map[string]any{"usage": map[string]any{"prompt_tokens": 8, "completion_tokens": e.tokens}}
	var question struct {
		Model       string
		Prompt      string
		Messages    []any
		MaxTokens   int  `json:"max_tokens"`
		Temperature *int `json:"temperature"`
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&question); err != nil || question.MaxTokens != 1 || question.Temperature == nil {
			http.Error(w, "bad question", http.StatusBadRequest)
			return
		}
		answer["model"] = e.names[0] // some versions of vLLM always answer under the first name
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /health":
		w.WriteHeader(e.health)
	case "GET /v1/models":
		var data []any
		for _, name := range e.names {
			data = append(data, map[string]any{"id": name, "object": "model", "max_model_len": 512})
		}
		json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": data})
	case "POST /v1/completions":
		if e.noText {
			notFound(w)
			return
		}
		answer["choices"] = []any{map[string]any{"text": " 4", "finish_reason": "length"}}
		json.NewEncoder(w).Encode(answer)
	case "POST /v1/chat/completions":
		if e.noChat {
			notFound(w)
			return
		}
		answer["choices"] = []any{map[string]any{"message": map[string]any{"reasoning": "OK", "content": nil}}}
		json.NewEncoder(w).Encode(answer)
	default:
		notFound(w)
	}
}

func notFound(w http.ResponseWriter) {
	w.WriteHeader(http.StatusNotFound)
	io.WriteString(w, `{"error":{"message":"The model `+"`x`"+` does not exist.","type":"NotFoundError","param":"model","code":404}}`)
}

// serve starts a server and returns the target that reaches it.
func serve(t *testing.T, handler http.Handler) probe.Target {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return target(t, server.Listener.Addr())
}

func target(t *testing.T, addr net.Addr) probe.Target {
	t.Helper()
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return probe.Target{Host: host, Port: number}
}

func healthy() *engine { return &engine{names: []string{"kimi-k2.5", "kimi"}, tokens: 1, health: 200} }

func TestReady(t *testing.T) {
	tests := map[string]struct {
		change func(*engine, *probe.Target)
		want   string // the answer, or the error behind "cannot ask ADDRESS: "
	}{
		"well":            {func(e *engine, t *probe.Target) {}, `kimi-k2.5: 1 token " 4" by /v1/completions`},
		"by another name": {func(e *engine, t *probe.Target) { t.Models = []string{"kimi"} }, `kimi: 1 token " 4" by /v1/completions`},
		"any of names":    {func(e *engine, t *probe.Target) { t.Models = []string{"new", "kimi"} }, `kimi: 1 token " 4" by /v1/completions`},
		"any name":        {func(e *engine, t *probe.Target) { t.Models = nil }, `kimi-k2.5: 1 token " 4" by /v1/completions`},
		"chat only":       {func(e *engine, t *probe.Target) { e.noText = true }, `kimi-k2.5: 1 token "OK" by /v1/chat/completions`},
		"with a key":      {func(e *engine, t *probe.Target) { e.key, t.APIKey = "s3cret", "s3cret" }, `kimi-k2.5: 1 token " 4" by /v1/completions`},
		"without its key": {func(e *engine, t *probe.Target) { e.key = "s3cret" }, `/v1/models answers 401 Unauthorized: Unauthorized`},
		"another model":   {func(e *engine, t *probe.Target) { e.names = []string{"minimax\x1b[2J"} }, `the server answers as "minimax\x1b[2J", not as "kimi-k2.5"`},
		"no model":        {func(e *engine, t *probe.Target) { e.names = nil }, `the server answers as no model, not as "kimi-k2.5"`},
		"no model at all": {func(e *engine, t *probe.Target) { e.names, t.Models = nil, nil }, `the server lists no model`},
		"dead engine":     {func(e *engine, t *probe.Target) { e.health = 503 }, `/health answers 503 Service Unavailable`},
		"a redirect":      {func(e *engine, t *probe.Target) { e.health = 307 }, `/health answers 307 Temporary Redirect`},
		"an odd status":   {func(e *engine, t *probe.Target) { e.health = 799 }, `/health answers 799`},
		"no token":        {func(e *engine, t *probe.Target) { e.tokens = 0 }, `the engine generated no token, /v1/completions answers "{"choices":[{"finish_reason":"length","text":" 4"}],"model":"kimi-k2.5","usage":{"completion_tokens":0,"prompt_tokens":8}}\n"`},
		"no generation": {func(e *engine, t *probe.Target) { e.noText, e.noChat = true, true },
			"/v1/completions answers 404 Not Found: The model `x` does not exist."},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := healthy()
			target := serve(t, e)
			target.Models = []string{"kimi-k2.5"}
			test.change(e, &target)
			answer, err := target.Ready(t.Context())
			got := fmt.Sprintf("%s: %d token %q by %s", answer.Model, answer.Tokens, answer.Text, answer.Path)
			if err != nil {
				got = strings.TrimPrefix(err.Error(), "cannot ask "+target.String()+": ")
			} else if answer.FirstToken <= 0 {
				t.Errorf("the token took %s", answer.FirstToken)
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			var wrong *probe.WrongModelError
			if strings.Contains(test.want, "not as") != errors.As(err, &wrong) {
				t.Errorf("%v is of type %T", err, err)
			}
			if strings.Contains(test.want, "401") != errors.Is(err, probe.ErrUnauthorized) {
				t.Errorf("%v: is it about the key?", err)
			}
		})
	}
}

func TestReadyAsksInOrderOnOneConnection(t *testing.T) {
	e := healthy()
	server := httptest.NewUnstartedServer(e)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			e.connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	if _, err := target(t, server.Listener.Addr()).Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(e.asked, ", "), "GET /health, GET /v1/models, POST /v1/completions"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if n := e.connections.Load(); n != 1 {
		t.Errorf("over %d connections", n)
	}
}

// A server may close a kept connection just when the next question comes (uvicorn does after 5 s), which says nothing about
// its health: the question is asked again.
func TestConnectionClosedUnderQuestion(t *testing.T) {
	e := healthy()
	closed := false
	target := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !closed {
			closed = true
			panic(http.ErrAbortHandler) // closes without an answer
		}
		e.ServeHTTP(w, r)
	}))
	if _, err := target.Ready(t.Context()); err != nil || !closed {
		t.Errorf("got %v, closed: %t", err, closed)
	}
}

func TestNotListening(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := target(t, listener.Addr())
	listener.Close()
	dir := t.TempDir()
	left := filepath.Join(dir, "left.sock")
	socket, err := net.Listen("unix", left)
	if err != nil {
		t.Fatal(err)
	}
	socket.(*net.UnixListener).SetUnlinkOnClose(false)
	socket.Close()
	for _, target := range []probe.Target{free, {UDS: left}, {UDS: filepath.Join(dir, "absent.sock")}} {
		err := target.Health(t.Context())
		if !errors.Is(err, probe.ErrNotListening) {
			t.Errorf("%s: got %v", target, err)
		}
		if want := fmt.Sprintf("cannot ask %s: nothing listens there", target); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vllm.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(healthy())
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	if _, err := (probe.Target{UDS: path, Host: "192.0.2.1", Port: 1}).Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(healthy())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it minds the first question
	server.StartTLS()
	defer server.Close()
	target := target(t, server.Listener.Addr())
	if err := target.Health(t.Context()); err == nil {
		t.Error("TLS is spoken without having been asked for")
	}
	target.TLS = true
	if _, err := target.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAddress(t *testing.T) {
	tests := map[string]probe.Target{
		"127.0.0.1:8000":      {Port: 8000},
		"127.0.0.1:8001":      {Host: "0.0.0.0", Port: 8001},
		"[::1]:8000":          {Host: "::", Port: 8000},
		"[::1]:8001":          {Host: "[::]", Port: 8001},
		"10.0.0.5:8000":       {Host: "10.0.0.5", Port: 8000},
		"[2001:db8::1]:8000":  {Host: "2001:db8::1", Port: 8000},
		"[fe80::1%eth0]:8000": {Host: "fe80::1%eth0", Port: 8000},
		"localhost:8000":      {Host: "localhost", Port: 8000},
		"/run/vllm/a.sock":    {Host: "0.0.0.0", Port: 8000, UDS: "/run/vllm/a.sock"},
	}
	for want, target := range tests {
		if got := target.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
