package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"vllmhost/hostctl/gpu"
	"vllmhost/hostctl/proc"
	"vllmhost/unitgen"
)

// GPUs is what a start asks of the host's GPUs.
type GPUs interface {
	Devices() ([]gpu.Device, error)
	MissingNodes(ds []gpu.Device) []string
	Versions() (module, library string, err error)
	Memory(ctx context.Context) ([]gpu.Memory, error)
	Apps(ctx context.Context) ([]gpu.App, error)
	WaitFree(ctx context.Context, wants []gpu.Want, report func(text string)) (detail string, err error)
}

const (
	// How long the driver may take to make its device nodes, at boot.
	nodesTimeout = time.Minute
	nodesPoll    = 250 * time.Millisecond // a directory of devtmpfs signals nothing that is worth a watch
	// How long GPU memory may take to be free once its processes are gone.
	memoryTimeout = 2 * time.Minute
	// What vLLM takes of each GPU when it is not told: 0.92, and 0.90 before that (vllm/config/cache.py). The lower of the
	// two refuses nothing that would have worked.
	defaultUtilization = 0.90
)

// awaitGPUs waits until the instance's GPUs are there and enough of their memory is free, and stays so.
func (g *Guard) awaitGPUs(ctx context.Context, s unitgen.Section, skip []string) error {
	if !s.UsesGPUs() {
		return nil
	}
	w := g.waiting()
	defer w.stop()
	devices, err := awaitDevices(ctx, g.GPUs, s, w.say)
	if err := g.pass(skip, err); err != nil || devices == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, memoryTimeout)
	defer cancel()
	detail, err := g.GPUs.WaitFree(ctx, wants(s, devices, skip), w.say)
	if err := g.pass(skip, memoryRefusal(err)); err != nil {
		return err
	}
	if err == nil {
		g.Log.Info("memory is free: " + detail)
	}
	return nil
}

// wants is how much of each device's memory the instance takes. Where that check is to be skipped, it is enough that the
// memory's use is at rest.
func wants(s unitgen.Section, devices []gpu.Device, skip []string) []gpu.Want {
	share := s.GPUUtilization
	switch {
	case slices.Contains(skip, CheckMemory):
		share = 0
	case share == 0:
		share = defaultUtilization
	}
	var all []gpu.Want
	for _, d := range devices {
		all = append(all, gpu.Want{Device: d, Share: share})
	}
	return all
}

// memoryRefusal turns what keeps memory from being free into a refusal.
func memoryRefusal(err error) error {
	var busy *gpu.BusyError
	if errors.As(err, &busy) {
		return &Refusal{Check: CheckMemory, Why: busy.Error(), Hint: "nvidia-smi"}
	}
	return driverRefusal(err)
}

// driverRefusal turns what is wrong with the driver into a refusal with what to do about it.
func driverRefusal(err error) error {
	var mismatch *gpu.MismatchError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &mismatch):
		return &Refusal{Check: CheckGPU, Why: err.Error(), Hint: "reboot, or unload the old module and load the new one"}
	case errors.Is(err, gpu.ErrNoDriver):
		return &Refusal{Check: CheckGPU, Why: err.Error(), Hint: "modprobe nvidia"}
	case errors.Is(err, gpu.ErrNoTool):
		return &Refusal{Check: CheckMemory, Why: err.Error()}
	case errors.Is(err, gpu.ErrNoAnswer):
		return &Refusal{Check: CheckMemory, Why: err.Error(), Hint: "dmesg | grep -i -e xid -e nvrm"}
	}
	return err
}

// devicesOf returns the instance's GPUs when they are all there with a whole driver. What is missing and may still come is
// a *Refusal; a driver that is wrong is an error of package gpu.
func devicesOf(gpus GPUs, s unitgen.Section) ([]gpu.Device, error) {
	all, err := gpus.Devices()
	if err != nil {
		return nil, err
	}
	if s.GPUCount > 0 && len(all) < s.GPUCount {
		return nil, &Refusal{Check: CheckGPU, Hint: "dmesg | grep -i -e xid -e 'fallen off the bus'",
			Why: fmt.Sprintf("%d of %d GPUs are there", len(all), s.GPUCount)}
	}
	devices, err := gpu.Choose(all, s.AllGPUs, s.GPUs)
	if err != nil {
		return nil, &Refusal{Check: CheckGPU, Why: err.Error(), Hint: "nvidia-smi -L"}
	}
	if missing := gpus.MissingNodes(devices); len(missing) > 0 {
		return nil, &Refusal{Check: CheckGPU, Hint: "nvidia-modprobe -u -c 0",
			Why: fmt.Sprintf("the driver has not made %s", strings.Join(missing, ", "))}
	}
	module, library, err := gpus.Versions()
	if err == nil && library != "" && module != library {
		err = &gpu.MismatchError{Module: module, Library: library}
	}
	return devices, err
}

// awaitDevices is devicesOf, with patience: at boot the driver may still be loading.
func awaitDevices(ctx context.Context, gpus GPUs, s unitgen.Section, say func(string)) ([]gpu.Device, error) {
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	for {
		devices, err := devicesOf(gpus, s)
		var missing *Refusal
		if !errors.As(err, &missing) && !errors.Is(err, gpu.ErrNoDriver) {
			return devices, driverRefusal(err)
		}
		say(fmt.Sprintf("Waiting for the GPUs: %v", err))
		select {
		case <-ctx.Done():
			return nil, driverRefusal(err)
		case <-time.After(nodesPoll):
		}
	}
}

// gpus checks that the candidate's GPUs are there, and that enough of their memory will be free once others have left.
func (p Preflight) gpus(ctx context.Context, c Candidate) (string, error) {
	if !c.Section.UsesGPUs() {
		return "", nil
	}
	devices, err := devicesOf(p.GPUs, c.Section)
	if err != nil {
		return "", driverRefusal(err)
	}
	memory, err := p.GPUs.Memory(ctx)
	if err != nil {
		return "", driverRefusal(err)
	}
	apps, err := p.GPUs.Apps(ctx)
	if err != nil {
		return "", driverRefusal(err)
	}
	for _, want := range wants(c.Section, devices, c.Skip) {
		for _, m := range memory {
			if m.UUID != want.Device.UUID {
				continue
			}
			if err := enough(m, apps, c.Leaving, want.Share); err != nil {
				return "", err
			}
		}
	}
	fact := fmt.Sprintf("%d GPUs", len(devices))
	if len(devices) == 1 {
		fact = "1 GPU"
	}
	if slices.Contains(c.Skip, CheckMemory) {
		fact += ", their memory not checked"
	}
	return fact, nil
}

// enough refuses when a GPU will not have a share of its memory free, also once the leaving units have left.
func enough(m gpu.Memory, apps []gpu.App, leaving []string, share float64) error {
	free := m.FreeMiB
	var staying []string
	for _, app := range apps {
		if app.UUID != m.UUID {
			continue
		}
		process, err := proc.Read(app.PID)
		switch {
		case err == nil && slices.Contains(leaving, process.Unit):
			free += app.MiB
		case err == nil:
			staying = append(staying, fmt.Sprintf("%s held by %s", gib(app.MiB), process))
		default:
			staying = append(staying, fmt.Sprintf("%s held by pid %d (%s), which cannot be seen", gib(app.MiB), app.PID, app.Name))
		}
	}
	want := share * float64(m.TotalMiB)
	if float64(free) >= want {
		return nil
	}
	if len(staying) == 0 {
		staying = []string{gib(m.TotalMiB-free) + " held by nobody who can be seen"}
	}
	return &Refusal{Check: CheckMemory, Hint: "nvidia-smi", Why: fmt.Sprintf("GPU %d will have %s free, and %s is wanted: %s",
		m.Index, gib(free), gib(int(want)), strings.Join(staying, ", "))}
}

func gib(mib int) string { return fmt.Sprintf("%.1f GiB", float64(mib)/1024) }

// AwaitFree waits until an instance's GPUs have the memory it wants and nobody holds its port, as long as ctx allows. It
// returns in a few words what it found.
func AwaitFree(ctx context.Context, gpus GPUs, s unitgen.Section, skip []string, report func(text string)) (string, error) {
	skip = append(slices.Clone(skip), s.Allow...)
	free := s.Where() + " free"
	if slices.Contains(skip, CheckPort) {
		free = "port skipped"
	} else if err := checkPort(s, holdersOf, nobody); err != nil {
		return "", err
	}
	if !s.UsesGPUs() {
		return free, nil
	}
	devices, err := devicesOf(gpus, s)
	if err == nil {
		var detail string
		if detail, err = gpus.WaitFree(ctx, wants(s, devices, skip), report); err == nil {
			return detail + ", " + free, nil
		}
	}
	var refusal *Refusal
	if err = memoryRefusal(err); errors.As(err, &refusal) && slices.Contains(skip, refusal.Check) {
		return refusal.Check + " skipped, " + free, nil
	}
	return "", err
}
