package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// An engine of await's tests is this test binary, started again with this variable set to what it does.
const engineVariable = "AWAIT_TEST_ENGINE"

func TestMain(m *testing.M) {
	switch what := os.Getenv(engineVariable); what {
	case "":
		os.Exit(m.Run())
	case "exit":
		os.Exit(3)
	case "swallow": // the first SIGTERM, as vLLM does while it loads
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		<-signals
		<-signals
		os.Exit(0)
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Hour) // with select {} Go would see a deadlock, and end it
	case "late": // listens, and is not ready for the first second
		serve("right", os.Getenv(engineVariable+"_PORT"), time.Now().Add(time.Second))
	default: // serves that model on the port in the next variable
		serve(what, os.Getenv(engineVariable+"_PORT"), time.Time{})
	}
}

func serve(model, port string, ready time.Time) {
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	serveOn(listener, model, ready)
	select {}
}

func serveOn(listener net.Listener, model string, ready time.Time) {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if time.Now().Before(ready) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q}]}`, model)
	})
	mux.HandleFunc("/v1/completions", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"model":%q,"choices":[{"text":" a"}],"usage":{"completion_tokens":1}}`, model)
	})
	server := httptest.NewUnstartedServer(mux)
	server.Listener.Close()
	server.Listener = listener
	server.Start()
}

// engine starts one and returns its pid; it is gone at the end of the test.
func engine(t *testing.T, what, port string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), engineVariable+"="+what, engineVariable+"_PORT="+port)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _, _ = cmd.Process.Wait() })
	return cmd
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// await runs it for an instance that is served as "right".
func await(t *testing.T, ctx context.Context, pid int, port, timeout string) error {
	t.Helper()
	timeout, stall, given := strings.Cut(timeout, "/")
	if !given {
		stall = timeout
	}
	path := filepath.Join(t.TempDir(), "vllm-a.service")
	text := fmt.Sprintf("[X-Vllmhost]\nFormat=1\nInstance=a\nHost=127.0.0.1\nPort=%s\nServedNames=right\nStartTimeout=%s\nStallTimeout=%s\n", port, timeout, stall)
	if err := os.WriteFile(path, unitgen.Seal([]byte(text)), 0o644); err != nil {
		t.Fatal(err)
	}
	sd := &fakeSystemd{units: map[string]systemd.UnitStatus{"vllm-a.service": {Name: "vllm-a.service", FragmentPath: path}}}
	a := Await{
		Hook:    Hook{Systemd: sd, Notify: func(string) {}, Log: slog.New(slog.DiscardHandler)},
		members: func() ([]int, error) { return []int{pid}, nil },
	}
	return a.Run(ctx, "a", Environment{MainPID: strconv.Itoa(pid)})
}

func TestAwait(t *testing.T) {
	for _, tt := range []struct {
		name, engine, timeout, want string
	}{
		{"it serves the right model", "right", "30s", ""},
		{"it answers 503 at first", "late", "30s", ""},
		{"it answers 503 for good", "late", "400ms", "not ready after 400ms (start_timeout): "},
		{"it serves another model", "wrong", "30s", "wrong"},
		{"it ends before it is ready", "exit", "30s", "ended before it was ready"},
		{"it stands still", "deaf", "30s/1s", "no progress for 1s (stall_timeout) while importing"},
		{"it never listens, and ignores SIGTERM", "deaf", "300ms", "not ready after 300ms (start_timeout)"},
		{"it never listens", "swallow", "300ms", "not ready after 300ms (start_timeout)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			port := freePort(t)
			cmd := engine(t, tt.engine, port)
			gone := make(chan struct{})
			go func() { _, _ = cmd.Process.Wait(); close(gone) }()
			err := await(t, t.Context(), cmd.Process.Pid, port, tt.timeout)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if tt.want == "" {
				return
			}
			// One that did not become ready is ended, also if it takes a second SIGTERM, or SIGKILL.
			select {
			case <-gone:
			case <-time.After(30 * time.Second):
				t.Error("the engine is still there")
			}
		})
	}
}

// systemd's one SIGTERM to a loading engine is not enough: await, which gets one too, repeats it.
func TestAwaitRepeatsSIGTERM(t *testing.T) {
	port := freePort(t)
	cmd := engine(t, "swallow", port)
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- await(t, ctx, cmd.Process.Pid, port, "1m") }()
	time.Sleep(100 * time.Millisecond) // until it catches the signal; nothing tells
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	stop()
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Fatal("the engine is still there")
	}
	if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("await says %v, want that it was stopped", err)
	}
}
