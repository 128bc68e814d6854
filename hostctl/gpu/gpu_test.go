package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nvidia-smi of these tests is this test binary, told by its first argument what to be.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "smi:") {
		smi(strings.TrimPrefix(os.Args[1], "smi:"), os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

// smi says what a real one said on a host with an H200 (driver 580.159.04), or does what one does on a bad day.
func smi(what string, args []string) {
	mode, file, _ := strings.Cut(what, ":")
	switch mode {
	case "hang":
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Hour)
	case "mismatch":
		fmt.Println("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.171")
		os.Exit(18)
	case "fail":
		fmt.Println("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
		os.Exit(9)
	case "loud":
		for range 100_000 {
			fmt.Println(strings.Repeat("x", 100))
		}
	}
	looped := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--loop-ms") })
	for {
		if slices.Contains(args, appQuery) {
			fmt.Println("519, GPU-1, 133638, VLLM::EngineCore, the one, with commas")
			fmt.Println("no pid, GPU-0, [N/A], [Not Found]")
		} else {
			used := 0
			if text, err := os.ReadFile(file); err == nil { // MiB on GPU 1
				_, _ = fmt.Sscan(string(text), &used)
			}
			fmt.Println("0, GPU-0, 143771, 0, 143156")
			fmt.Printf("1, GPU-1, 143771, %d, %d\n", used, 143156-used)
		}
		if !looped {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// host makes what the driver shows of two GPUs, and returns it with an nvidia-smi of that kind.
func host(t *testing.T, kind string) System {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@host)  \nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14) \n",
		"dev/nvidia0":                "", "dev/nvidia4": "", "dev/nvidiactl": "", "dev/nvidia-uvm": "",
		"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04": "",
	}
	for i, bus := range []string{"0000:06:00.0", "0000:c1:00.0"} {
		files["proc/driver/nvidia/gpus/"+bus+"/information"] = fmt.Sprintf(
			"Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\nGPU UUID: \t GPU-%d\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\n", i, bus, 4*i)
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(root, "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
	if err := os.Symlink("libnvidia-ml.so.580.159.04", link); err != nil {
		t.Fatal(err)
	}
	return System{Root: root, SMI: []string{os.Args[0], "smi:" + kind}}
}

func TestDevices(t *testing.T) {
	s := host(t, "ok")
	devices, err := s.Devices()
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{{0, "GPU-0", "NVIDIA H200", "0000:06:00.0", 0}, {1, "GPU-1", "NVIDIA H200", "0000:c1:00.0", 4}}
	if !slices.Equal(devices, want) {
		t.Errorf("got %+v, want %+v", devices, want)
	}
	if missing := s.MissingNodes(devices); len(missing) != 0 {
		t.Errorf("missing %q", missing)
	}
	os.Remove(filepath.Join(s.Root, "dev/nvidia4"))
	if missing := s.MissingNodes(devices); !slices.Equal(missing, []string{"/dev/nvidia4"}) {
		t.Errorf("missing %q, want the node by its minor number", missing)
	}
	module, library, err := s.Versions()
	if module != "580.159.04" || library != "580.159.04" || err != nil {
		t.Errorf("module %q, library %q, %v", module, library, err)
	}
	if _, err := (System{Root: t.TempDir()}).Devices(); !errors.Is(err, ErrNoDriver) {
		t.Errorf("without a driver: %v", err)
	}
}

func TestChoose(t *testing.T) {
	all := []Device{{Index: 0, UUID: "GPU-aa11"}, {Index: 1, UUID: "GPU-bb22"}, {Index: 2, UUID: "GPU-cc33"}, {Index: 5, UUID: "GPU-dd44"}}
	for _, tt := range []struct {
		every bool
		ids   string
		want  string
	}{
		{true, "", "GPUs 0-2,5"},
		{false, "1", "GPU 1"},
		{false, "0 GPU-bb", "GPUs 0-1"},
		{false, "7", "no GPU 7: this host has GPUs 0-2,5"},
		{false, "GPU-ee", "no GPU GPU-ee: this host has GPUs 0-2,5"},
	} {
		chosen, err := Choose(all, tt.every, strings.Fields(tt.ids))
		got := Name(chosen)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%q: %s, want %s", tt.ids, got, tt.want)
		}
	}
	if _, err := Choose(nil, true, nil); err == nil {
		t.Error("all of no GPUs are some")
	}
}

func TestMemory(t *testing.T) {
	memory, err := host(t, "ok").Memory(t.Context())
	want := []Memory{{0, "GPU-0", 143771, 0, 143156}, {1, "GPU-1", 143771, 0, 143156}}
	if err != nil || !slices.Equal(memory, want) {
		t.Errorf("got %+v, %v", memory, err)
	}
	apps, err := host(t, "ok").Apps(t.Context())
	if want := []App{{519, "GPU-1", 133638, "VLLM::EngineCore, the one, with commas"}, {0, "GPU-0", 0, "[Not Found]"}}; err != nil || !slices.Equal(apps, want) {
		t.Errorf("got %+v, %v", apps, err)
	}
}

func TestBadDays(t *testing.T) {
	patience(t, 300*time.Millisecond)
	var mismatch *MismatchError
	if _, err := host(t, "mismatch").Memory(t.Context()); !errors.As(err, &mismatch) || mismatch.Library != "580.171" {
		t.Errorf("mismatch: %v", err)
	}
	if _, err := host(t, "hang").Memory(t.Context()); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("hang: %v", err)
	}
	if _, err := host(t, "fail").Memory(t.Context()); err == nil || !strings.Contains(err.Error(), "couldn't communicate") {
		t.Errorf("fail: %v", err)
	}
	if memory, err := host(t, "loud").Memory(t.Context()); err != nil || len(memory) != 0 {
		t.Errorf("megabytes of nonsense: %v, %v", memory, err)
	}
}

// patience makes nvidia-smi's silence shorter for a test.
func patience(t *testing.T, d time.Duration) {
	before := answerTimeout
	answerTimeout = d
	t.Cleanup(func() { answerTimeout = before })
}

func wants(share float64) []Want {
	return []Want{{Device{Index: 0, UUID: "GPU-0", Minor: 0}, share}, {Device{Index: 1, UUID: "GPU-1", Minor: 4}, share}}
}

// Memory that comes back is waited for, and so is memory that still moves, although there is enough of it.
func TestWaitFree(t *testing.T) {
	used := filepath.Join(t.TempDir(), "used")
	write := func(mib int) {
		if err := os.WriteFile(used+".new", []byte(fmt.Sprint(mib)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(used+".new", used); err != nil {
			t.Fatal(err)
		}
	}
	write(130_000)
	s := host(t, "ok:"+used)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var told []string
	step := 0
	detail, err := s.WaitFree(ctx, wants(0.9), func(text string) {
		told = append(told, text)
		if step++; step == 2 {
			// It moves for longer than it has to be at rest: nobody may believe it before that.
			go func() {
				for mib := 9_000; mib >= 0; mib -= 1_000 {
					write(mib)
					time.Sleep(stableFor / 3)
				}
			}()
		}
	})
	if err != nil || detail != "2 GPUs at 0 MiB" {
		t.Errorf("%q, %v", detail, err)
	}
	if len(told) < 2 || !strings.HasPrefix(told[0], "waiting for GPU 1 to be released: 12.8 GiB free, 126.4 GiB wanted; ") ||
		!strings.HasSuffix(told[0], " of 1m0s") {
		t.Errorf("told %q", told)
	}
}

func TestWaitFreeInVain(t *testing.T) {
	used := filepath.Join(t.TempDir(), "used")
	if err := os.WriteFile(used, []byte("100000"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	_, err := host(t, "ok:"+used).WaitFree(ctx, wants(0.9), func(string) {})
	var busy *BusyError
	if !errors.As(err, &busy) || busy.Device.Index != 1 || !strings.HasPrefix(err.Error(), "GPU 1 has 42.1 GiB free, and 126.4 GiB is wanted: 130.5 GiB held by pid 519") {
		t.Errorf("%v", err)
	}
}

// A hanging nvidia-smi neither blocks nor fakes: then it counts who has the nodes open.
func TestWaitFreeWithoutAnswer(t *testing.T) {
	patience(t, 300*time.Millisecond)
	s := host(t, "hang")
	detail, err := s.WaitFree(t.Context(), wants(0.9), func(string) {})
	if err != nil || detail != "nvidia-smi does not answer; no process has GPUs 0-1 open" {
		t.Errorf("%q, %v", detail, err)
	}
	for descriptors, want := range map[int]string{
		3: "", // one that only looks
		1: "GPU 1 is open in pid 7 (vllm, user root)",
	} {
		t.Run(fmt.Sprint(descriptors), func(t *testing.T) {
			s := host(t, "hang")
			process := filepath.Join(s.Root, "proc/7")
			for name, text := range map[string]string{"comm": "vllm\n", "status": "State:\tS (sleeping)\nUid:\t0\t0\t0\t0\n", "cmdline": "vllm\x00", "cgroup": "0::/\n"} {
				if err := os.MkdirAll(filepath.Join(process, "fd"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(process, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cgroup := filepath.Join(s.Root, "sys/fs/cgroup")
			if err := os.MkdirAll(cgroup, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(cgroup, "cgroup.controllers"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			for fd := range descriptors {
				if err := os.Symlink("/dev/nvidia4", filepath.Join(process, "fd", fmt.Sprint(fd))); err != nil {
					t.Fatal(err)
				}
			}
			_, err := s.WaitFree(t.Context(), wants(0.9), func(string) {})
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// What nvidia-smi prints may be anything: it is a program of its own, and asks hardware.
func FuzzParseMemory(f *testing.F) {
	f.Add("0, GPU-0, 143771, 0, 143156")
	f.Add("0, GPU-0, [N/A], [Not Supported], -1")
	f.Add(",,,,")
	f.Fuzz(func(t *testing.T, line string) {
		m, ok := parseMemory(line)
		if ok && (m.Index < 0 || m.TotalMiB < 0 || m.UsedMiB < 0 || m.FreeMiB < 0) {
			t.Errorf("%q: %+v", line, m)
		}
	})
}
