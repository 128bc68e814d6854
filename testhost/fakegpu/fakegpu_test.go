package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// root makes the files of a host: GPUs, and a process that may hold some.
type root string

func newRoot(t *testing.T, gpus int) root {
	t.Helper()
	dir := t.TempDir()
	if err := Install(dir, gpus, []byte("#!")); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"run", "proc"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root(dir)
}

// process adds one whose descriptors are links to the nodes.
func (r root) process(t *testing.T, pid, parent int, argv []string, nodes ...string) {
	t.Helper()
	dir := filepath.Join(string(r), "proc", strconv.Itoa(pid))
	if err := os.MkdirAll(dir+"/fd", 0o755); err != nil {
		t.Fatal(err)
	}
	r.write(t, fmt.Sprintf("proc/%d/cmdline", pid), strings.Join(argv, "\x00")+"\x00")
	r.write(t, fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (a ) b) S %d 1 1", pid, parent))
	for i, node := range nodes {
		if err := os.Symlink(node, fmt.Sprintf("%s/fd/%d", dir, i)); err != nil {
			t.Fatal(err)
		}
	}
}

func (r root) kill(t *testing.T, pid int) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(string(r), "proc", strconv.Itoa(pid))); err != nil {
		t.Fatal(err)
	}
}

func (r root) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(string(r), name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// used reads memory.used of all GPUs at a moment.
func (r root) used(t *testing.T, now time.Time) string {
	t.Helper()
	s, err := Read(string(r), now)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.QueryGPU("memory.used", Format{NoHeader: true, NoUnits: true}, func(GPU) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(out), " ")
}

// As captured on a real H200 host.
func TestQueryGPU(t *testing.T) {
	s, err := Read(string(newRoot(t, 1)), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	const fields = "index,uuid,name,pci.bus_id,memory.total,memory.used,memory.free,driver_version,compute_cap," +
		"compute_mode,mig.mode.current,persistence_mode,power.limit,utilization.gpu"
	all := func(GPU) bool { return true }
	got, err := s.QueryGPU(fields, Format{NoHeader: true, NoUnits: true}, all)
	if err != nil {
		t.Fatal(err)
	}
	const want = "0, GPU-11111111-2222-3333-4444-555555555555, NVIDIA H200, 00000000:06:00.0, 143771, 0, 143156, " +
		"580.159.04, 9.0, Default, Disabled, Enabled, 700.00, 0\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	got, err = s.QueryGPU("index, memory.total", Format{}, all)
	if want := "index, memory.total [MiB]\n0, 143771 MiB\n"; got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if _, err := s.QueryGPU("index,colour", Format{}, all); err == nil || !strings.Contains(err.Error(), `"colour"`) {
		t.Errorf("an unknown field gives %v", err)
	}
}

// Who holds how much: a worker by its parent's command line, a stranger by
// his own, and vLLM's API server, which only looks, nothing.
func TestHolders(t *testing.T) {
	r := newRoot(t, 2)
	serve := []string{"vllm", "serve", "/srv/models/x", "--gpu-memory-utilization", "0.5"}
	look := []string{"/dev/nvidia0", "/dev/nvidia0", "/dev/nvidia0", "/dev/nvidiactl"}
	r.process(t, 100, 1, serve, look...)
	r.process(t, 101, 100, []string{"VLLM::EngineCore"}, look...)
	r.process(t, 102, 101, []string{"VLLM::Worker_TP0"}, "/dev/nvidia0", "/dev/nvidia-uvm")
	r.process(t, 200, 1, []string{"nvidia-smi", HoldFlag, "1", "4096"}, "/dev/nvidia1")
	r.process(t, 300, 1, []string{"python3", "train.py"}, "/dev/nvidia1", "/dev/null")
	r.process(t, 400, 1, []string{"bash"}, "/dev/null")
	s, err := Read(string(r), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.QueryComputeApps("pid,gpu_uuid,process_name,used_gpu_memory", Format{NoHeader: true, NoUnits: true}, func(GPU) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"102, GPU-11111111-2222-3333-4444-555555555555, VLLM::Worker_TP0, 71885",
		"200, GPU-22222222-2222-3333-4444-555555555555, nvidia-smi, 4096",
		"300, GPU-22222222-2222-3333-4444-555555555555, python3, 132269",
		"",
	}, "\n")
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, want := r.used(t, time.Now()), "71885 136365"; got != want {
		t.Errorf("used %q, want %q", got, want)
	}
}

// Memory that is released slowly stays used for so long after the first look
// that finds its holder gone.
func TestSlowRelease(t *testing.T) {
	r := newRoot(t, 1)
	r.write(t, "etc/fakegpu/slow-release", "2\n")
	r.process(t, 100, 1, []string{"nvidia-smi", HoldFlag, "0", "1000"}, "/dev/nvidia0")
	start := time.Now()
	steps := []struct {
		after time.Duration
		alive bool
		want  string
	}{
		{0, true, "1000"},
		{time.Second, false, "1000"}, // the clock starts
		{2 * time.Second, false, "1000"},
		{3 * time.Second, false, "0"},
		{4 * time.Second, false, "0"},
	}
	for _, step := range steps {
		if !step.alive {
			r.kill(t, 100)
		}
		if got := r.used(t, start.Add(step.after)); got != step.want {
			t.Errorf("after %v: %s MiB, want %s", step.after, got, step.want)
		}
	}
}

func TestSwitches(t *testing.T) {
	r := newRoot(t, 3)
	r.write(t, "etc/fakegpu/foreign", "1 40960\n2 999999\n")
	if got, want := r.used(t, time.Now()), "0 40960 143771"; got != want {
		t.Errorf("foreign: used %q, want %q", got, want)
	}
	r.write(t, "etc/fakegpu/gone", "1\n")
	if got, want := r.used(t, time.Now()), "0 143771"; got != want {
		t.Errorf("gone: used %q, want %q", got, want)
	}
}

func TestParseFormat(t *testing.T) {
	for text, ok := range map[string]bool{"csv": true, "csv,noheader": true, "csv, noheader, nounits": true, "noheader": false, "xml": false} {
		if _, err := ParseFormat(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
