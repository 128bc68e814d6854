package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program is the binary under test, called vllm because its name is what ps shows.
func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("VLLM_UNDER_TEST")
	if path == "" {
		t.Fatal("TestMain did not build the program")
	}
	return path
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "vllmsim")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "vllm")
		build := exec.Command("go", "build", "-o", path, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "cannot build the program: %v\n%s", err, out)
			return 1
		}
		os.Setenv("VLLM_UNDER_TEST", path)
		return m.Run()
	}())
}

// sim is one running vllmsim with a model, a /dev/shm and a /tmp of its own.
type sim struct {
	t    *testing.T
	cmd  *exec.Cmd
	base string // URL
	port string
	dir  string // holds model, shm, dev, t

	mu     sync.Mutex
	log    bytes.Buffer
	grown  chan struct{}
	exited chan struct{}
}

const testTimeout = 20 * time.Second // bounds a hang, nothing else

// prepare makes the directories of a sim and its command line, without starting it.
// emptyShard is the shortest safetensors file: the length of its header, and a header without tensors.
const emptyShard = "\x02\x00\x00\x00\x00\x00\x00\x00{}"

func prepare(t *testing.T, env []string, args ...string) *sim {
	t.Helper()
	dir, err := os.MkdirTemp("", "vs") // short: paths of Unix sockets end at 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	s := &sim{t: t, dir: dir, grown: make(chan struct{}, 1), exited: make(chan struct{})}
	for _, sub := range []string{"model", "shm", "dev", "t"} {
		if err := os.Mkdir(s.path(sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.write("model/model.safetensors", emptyShard)
	if len(args) == 0 || args[0] == "serve" {
		s.port = freePort(t)
		s.base = "http://127.0.0.1:" + s.port
		if len(args) > 0 {
			args = args[1:]
		}
		args = append([]string{"serve", s.path("model"), "--host", "127.0.0.1", "--port", s.port, "--served-model-name", "tiny"}, args...)
	}
	s.cmd = exec.Command(program(t), args...)
	s.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + s.path("t"), "VLLMSIM_SHM_DIR=" + s.path("shm"), "VLLMSIM_DEV_DIR=" + s.path("dev"),
		"VLLMSIM_LOAD_TIME=50ms", "VLLMSIM_STOP_TIME=20ms", "VLLMSIM_WATCHDOG=300ms", "VLLMSIM_TERM_TIME=100ms", "VLLMSIM_FAIL_TIME=20ms",
		"VLLMSIM_STEP_BASE=1ms", "VLLMSIM_STEP_PER_SEQ=0", "VLLMSIM_STEP_PER_PREFILL=1ms",
	}, env...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.Cleanup(func() {
		if s.cmd.Process != nil {
			syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
			<-s.exited
		}
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("log of %s:\n%s", strings.Join(args, " "), s.text())
		}
	})
	return s
}

// launch starts the sim and gathers what it prints.
func (s *sim) launch() *sim {
	s.t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = in, in
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	in.Close()
	go func() {
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadString('\n')
			s.mu.Lock()
			s.log.WriteString(line)
			s.mu.Unlock()
			select {
			case s.grown <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		s.cmd.Wait()
		close(s.exited)
	}()
	return s
}

// start launches a sim.
func start(t *testing.T, env []string, args ...string) *sim {
	t.Helper()
	return prepare(t, env, args...).launch()
}

// ready launches a sim and waits until it answers.
func ready(t *testing.T, env []string, args ...string) *sim {
	t.Helper()
	s := start(t, env, args...)
	s.untilReady()
	return s
}

func (s *sim) path(name string) string { return filepath.Join(s.dir, name) }

func (s *sim) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// saw waits for a line that holds text.
func (s *sim) saw(text string) {
	s.t.Helper()
	deadline := time.After(testTimeout)
	for !strings.Contains(s.text(), text) {
		select {
		case <-s.grown:
		case <-s.exited:
			time.Sleep(10 * time.Millisecond) // the pipe is read to its end elsewhere
			if !strings.Contains(s.text(), text) {
				s.t.Fatalf("ended without saying %q", text)
			}
		case <-deadline:
			s.t.Fatalf("never said %q", text)
		}
	}
}

// untilReady waits for health, which is the only thing that says that a server listens.
func (s *sim) untilReady() {
	s.t.Helper()
	s.saw("Application startup complete.")
	deadline := time.Now().Add(testTimeout)
	for time.Now().Before(deadline) {
		if resp, err := http.Get(s.base + "/health"); err == nil {
			resp.Body.Close()
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.t.Fatal("does not listen")
}

// status waits for the end and says how it was: a status, or minus the signal.
func (s *sim) status() int {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(testTimeout):
		s.t.Fatal("does not end")
	}
	ws := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return -int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (s *sim) signal(sig syscall.Signal) { s.cmd.Process.Signal(sig) }

// running reports whether the main process is still there.
func (s *sim) running() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// files lists the names in one of the sim's directories that match a pattern.
func (s *sim) files(dir, pattern string) []string {
	s.t.Helper()
	entries, err := os.ReadDir(s.path(dir))
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if regexp.MustCompile(pattern).MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// call makes one request and returns status and body.
func (s *sim) call(method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// stream is a streaming request that a goroutine reads.
type stream struct {
	lines  chan string // events without "data: "
	cancel context.CancelFunc
	err    error // why it ended, valid when lines is closed
}

func (s *sim) stream(path, body string) *stream {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", s.base+path, strings.NewReader(body))
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	st := &stream{lines: make(chan string, 10_000), cancel: cancel}
	s.t.Cleanup(cancel)
	go func() {
		defer close(st.lines)
		defer resp.Body.Close()
		scan := bufio.NewScanner(resp.Body)
		scan.Buffer(nil, 1<<20)
		for scan.Scan() {
			if event, ok := strings.CutPrefix(scan.Text(), "data: "); ok {
				st.lines <- event
			}
		}
		st.err = scan.Err()
	}()
	return st
}

// next returns one event, or "" at the end.
func (st *stream) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-st.lines:
		return line
	case <-time.After(testTimeout):
		t.Fatal("the stream is silent")
		return ""
	}
}

// rest returns all events to the end.
func (st *stream) rest(t *testing.T) []string {
	t.Helper()
	var all []string
	for line := st.next(t); line != ""; line = st.next(t) {
		all = append(all, line)
	}
	return all
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// refused reports whether a connection is refused, as opposed to anything else.
func refused(port string) bool {
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
