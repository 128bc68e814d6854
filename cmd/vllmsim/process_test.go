package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProcessTree(t *testing.T) {
	t.Parallel()
	s := prepare(t, []string{"VLLMSIM_GPU_BYSTANDERS=false"}, "serve", "-tp", "2")
	s.write("dev/nvidia0", "")
	s.write("dev/nvidia1", "")
	s.launch().untilReady()
	truth := s.truth()
	if got := comm(s.cmd.Process.Pid); got != "vllm" {
		t.Errorf("main process is called %q", got)
	}
	if got := comm(truth.EnginePID); got != "VLLM::EngineCor" {
		t.Errorf("engine is called %q", got)
	}
	for rank, pid := range truth.WorkerPIDs {
		if got := comm(pid); got != "VLLM::Worker_TP" {
			t.Errorf("worker is called %q", got)
		}
		if got := title(pid); got != fmt.Sprintf("VLLM::Worker_TP%d", rank) {
			t.Errorf("worker's title is %q", got)
		}
		if got := parent(t, pid); got != truth.EnginePID {
			t.Errorf("worker's parent is %d, want the engine %d", got, truth.EnginePID)
		}
		for minor := range 2 {
			if got := holds(pid, s.path(fmt.Sprintf("dev/nvidia%d", minor))); got != (minor == rank) {
				t.Errorf("worker %d holds nvidia%d: %v", rank, minor, got)
			}
		}
	}
	if holds(truth.EnginePID, s.path("dev/nvidia0")) {
		t.Error("the engine holds a GPU although workers do")
	}
}

func TestVisibleDevices(t *testing.T) {
	t.Parallel()
	s := prepare(t, []string{"CUDA_VISIBLE_DEVICES=1"})
	s.write("dev/nvidia0", "")
	s.write("dev/nvidia1", "")
	s.launch().untilReady()
	if engine := s.enginePID(); holds(engine, s.path("dev/nvidia0")) || !holds(engine, s.path("dev/nvidia1")) {
		t.Error("the engine does not hold exactly nvidia1")
	}
}

// truthAnswer is the part of /__truth that tests use.
type truthAnswer struct {
	EnginePID  int            `json:"engine_pid"`
	WorkerPIDs []int          `json:"worker_pids"`
	Generation int            `json:"generation_tokens"`
	Steps      int            `json:"steps"`
	MaxRunning int            `json:"max_running"`
	Ended      map[string]int `json:"ended"`
}

func (s *sim) truth() truthAnswer {
	s.t.Helper()
	var answer truthAnswer
	_, body := s.call("GET", "/__truth", "")
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		s.t.Fatalf("%v: %s", err, body)
	}
	return answer
}

// enginePID reads the engine's pid from the log, which works when the server no longer answers.
func (s *sim) enginePID() int {
	s.t.Helper()
	var pid int
	_, after, _ := strings.Cut(s.text(), "(EngineCore pid=")
	fmt.Sscanf(after, "%d", &pid)
	return pid
}

func comm(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(text))
}

func title(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimRight(string(text), "\x00")
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var ppid int
	_, after, _ := strings.Cut(string(text), ") ")
	fmt.Sscanf(after, "%s %d", new(string), &ppid)
	return ppid
}

func holds(pid int, path string) bool {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	for _, e := range entries {
		if target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name())); target == path {
			return true
		}
	}
	return false
}

func waitForComm(t *testing.T, pid int, name string) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); comm(pid) != name; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is called %q, not %q", pid, comm(pid), name)
		}
	}
	time.Sleep(50 * time.Millisecond) // exec is done, the runtime not yet
}

// waitGone waits until pid is no running process any more.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); strings.HasPrefix(comm(pid), "VLLM"); time.Sleep(time.Millisecond) {
		if state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); strings.Contains(string(state), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

// A worker's death takes the engine along.
func TestWorkerDeath(t *testing.T) {
	t.Parallel()
	s := ready(t, nil, "serve", "-tp", "2")
	syscall.Kill(s.truth().WorkerPIDs[1], syscall.SIGKILL)
	s.saw("Worker proc VLLM::Worker_TP1 died unexpectedly")
	if got := s.status(); got != 0 {
		t.Errorf("status %d, want 0", got)
	}
}

// When only the main process is killed, the others live on and keep their memory, but not the port.
func TestKillOfTheMainProcess(t *testing.T) {
	t.Parallel()
	s := ready(t, nil, "serve", "-tp", "2")
	engine := s.enginePID()
	s.signal(syscall.SIGKILL)
	s.status()
	if !refused(s.port) {
		t.Error("the port is still open")
	}
	time.Sleep(200 * time.Millisecond)
	if comm(engine) != "VLLM::EngineCor" {
		t.Error("the engine is gone")
	}
	if got := len(s.files("shm", "^psm_")); got != 4 {
		t.Errorf("%d segments, want 4", got)
	}
	syscall.Kill(engine, syscall.SIGTERM)
	waitGone(t, engine)
	deadline := time.Now().Add(testTimeout)
	for len(s.files("shm", "")) > 0 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if left := s.files("shm", ""); len(left) > 0 {
		t.Errorf("the tracker left %v", left)
	}
}

// SIGKILL of everything at once, as systemd does in the end, leaves the shared memory behind.
func TestKillOfEverything(t *testing.T) {
	t.Parallel()
	s := ready(t, nil, "serve", "-tp", "2")
	syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	s.status()
	if got := len(s.files("shm", "")); got != 8 {
		t.Errorf("%d files stay in shm, want all 8: %v", got, s.files("shm", ""))
	}
}
