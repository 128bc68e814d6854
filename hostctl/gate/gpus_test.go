package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vllmhost/hostctl/gpu"
	"vllmhost/hostctl/ports"
	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// fakeGPUs are n equal GPUs of 100 GiB.
type fakeGPUs struct {
	n       int
	missing []string
	library string
	used    int // MiB, on each
	apps    []gpu.App
	driver  error // of Devices
	smi     error // of nvidia-smi
	wait    error // of WaitFree
	waited  []gpu.Want
}

const totalMiB = 100 << 10

func (f *fakeGPUs) Devices() ([]gpu.Device, error) {
	var all []gpu.Device
	for i := range f.n {
		all = append(all, gpu.Device{Index: i, UUID: fmt.Sprintf("GPU-%d", i)})
	}
	return all, f.driver
}

func (f *fakeGPUs) MissingNodes([]gpu.Device) []string { return f.missing }

func (f *fakeGPUs) Versions() (string, string, error) { return "580.1", f.library, nil }

func (f *fakeGPUs) Memory(context.Context) ([]gpu.Memory, error) {
	var all []gpu.Memory
	for i := range f.n {
		all = append(all, gpu.Memory{Index: i, UUID: fmt.Sprintf("GPU-%d", i), TotalMiB: totalMiB, UsedMiB: f.used, FreeMiB: totalMiB - f.used})
	}
	return all, f.smi
}

func (f *fakeGPUs) Apps(context.Context) ([]gpu.App, error) { return f.apps, f.smi }

func (f *fakeGPUs) WaitFree(_ context.Context, wants []gpu.Want, _ func(string)) (string, error) {
	f.waited = wants
	return "free", f.wait
}

func TestGuardOfGPUs(t *testing.T) {
	busy := &gpu.BusyError{Device: gpu.Device{Index: 1}, FreeMiB: 1 << 10, WantMiB: 90 << 10, Holders: []string{"98.0 GiB held by pid 7"}}
	for _, tt := range []struct {
		name    string
		lines   string // of the unit's section
		set     func(*bench)
		refused string
		wants   int // devices that were waited for
	}{
		{name: "all of them", lines: "AllGPUs=yes", wants: 2},
		{name: "one of them", lines: "GPUs=1", set: func(b *bench) { b.visible = "1" }, wants: 1},
		{name: "none", lines: "Shm=private"},
		{name: "the environment has another one", lines: "GPUs=1", set: func(b *bench) { b.visible = "0" },
			refused: "CUDA_VISIBLE_DEVICES is 0, the definition says 1"},
		{name: "somebody holds the memory", lines: "AllGPUs=yes", set: func(b *bench) { b.gpus.wait = busy },
			refused: "GPU 1 has 1.0 GiB free, and 90.0 GiB is wanted: 98.0 GiB held by pid 7"},
		{name: "and that is allowed", lines: "AllGPUs=yes\nAllow=gpu-memory", set: func(b *bench) { b.gpus.wait = busy }, wants: 2},
		{name: "the library is another one", lines: "AllGPUs=yes", set: func(b *bench) { b.gpus.library = "580.2" },
			refused: "the driver's library is 580.2, its loaded module 580.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.add("a", "activating", "start-pre", "Port=8000", tt.lines)
			if tt.set != nil {
				tt.set(b)
			}
			_, err := b.guard("a")
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Fatalf("error %v, want %q", err, tt.refused)
				}
				return
			}
			if err != nil || len(b.gpus.waited) != tt.wants {
				t.Errorf("error %v, waited for %d devices, want %d", err, len(b.gpus.waited), tt.wants)
			}
		})
	}
}

// Two that share a GPU start one after the other; a third that does not fit any more does not start.
func TestGuardOfSharedGPUs(t *testing.T) {
	const half = "ShareGPUs=yes\nGPUMemoryUtilization=0.5\nStartTimeout=1h0m0s\nAllGPUs=yes"
	b := newBench(t)
	b.add("a", "activating", "start-pre", "Port=1", half)
	b.add("b", "activating", "start-pre", "Port=2", half)
	b.add("c", "activating", "start-pre", "Port=3", half)
	if _, err := b.guard("a"); err != nil {
		t.Fatal(err)
	}
	ready := false
	b.systemd.changes = []func(*systemd.UnitStatus){
		func(u *systemd.UnitStatus) { u.Sub = "start-post" },
		func(u *systemd.UnitStatus) { u.Active, ready = "active", true },
	}
	if _, err := b.guard("b"); err != nil {
		t.Fatal(err)
	}
	if !ready {
		t.Error("b did not wait until a was ready")
	}
	if _, err := b.guard("c"); err == nil || !strings.Contains(err.Error(), "together want 150 % of the memory of all GPUs") {
		t.Errorf("c: %v", err)
	}
}

func TestPreflightOfGPUs(t *testing.T) {
	for _, tt := range []struct {
		name    string
		set     func(*fakeGPUs)
		skip    string
		refused string
	}{
		{name: "free", set: func(*fakeGPUs) {}},
		{name: "somebody who stays", set: func(f *fakeGPUs) {
			f.used = 60 << 10
			f.apps = []gpu.App{{PID: 1, UUID: "GPU-1", MiB: 60 << 10}}
		}, refused: "GPU 0 will have 40.0 GiB free, and 90.0 GiB is wanted"},
		{name: "and that is skipped", skip: CheckMemory, set: func(f *fakeGPUs) { f.used = 60 << 10 }},
		{name: "nvidia-smi hangs", set: func(f *fakeGPUs) { f.smi = gpu.ErrNoAnswer }, refused: "nvidia-smi does not answer"},
		{name: "no driver", set: func(f *fakeGPUs) { f.driver = gpu.ErrNoDriver }, refused: "the NVIDIA driver is not loaded"},
		{name: "a GPU too few", set: func(f *fakeGPUs) { f.n = 1 }, refused: "1 of 2 GPUs are there"},
		{name: "no nodes", set: func(f *fakeGPUs) { f.missing = []string{"/dev/nvidia-uvm"} }, refused: "the driver has not made /dev/nvidia-uvm"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fakeGPUs{n: 2}
			tt.set(f)
			section := unitgen.Section{Instance: "a", AllGPUs: true, GPUCount: 2}
			nobodyListens := func(unitgen.Section) ([]ports.Holder, error) { return nil, nil }
			facts, refusals, err := Preflight{Systemd: &fakeSystemd{}, GPUs: f, Holders: nobodyListens}.Check(t.Context(),
				Candidate{Section: section, Skip: []string{CheckEngine, tt.skip}})
			if err != nil {
				t.Fatal(err)
			}
			if tt.refused != "" {
				if len(refusals) != 1 || !strings.Contains(refusals[0].Why, tt.refused) {
					t.Errorf("%v, want %q", refusals, tt.refused)
				}
				return
			}
			want := "2 GPUs"
			if tt.skip != "" {
				want += ", their memory not checked"
			}
			if len(refusals) > 0 || !slices.Contains(facts, want) {
				t.Errorf("%q, %v; want %q", facts, refusals, want)
			}
		})
	}
}
