package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"vllmhost/hostctl/proc"
)

// Want is how much of a GPU's memory must be free.
type Want struct {
	Device Device
	Share  float64 // of the whole memory, 0 to 1
}

const (
	lookInterval = 100 * time.Millisecond
	// stableFor is how long memory must not have changed. An engine that starts while another one still gives memory back,
	// or takes it, sizes its own wrongly (vllm issues 55827, 56830); two GPUs of one engine were seen to be freed 0.23 s
	// apart.
	stableFor = 300 * time.Millisecond
	// What the driver itself takes and gives back while nobody does anything, in MiB.
	jitter         = 16
	reportInterval = time.Second
)

// BusyError says that a GPU's memory is not free in time, and who holds it.
type BusyError struct {
	Device  Device
	FreeMiB int // -1 when nobody can say
	WantMiB int
	Holders []string // for people; empty when nobody can be seen
}

func (e *BusyError) Error() string {
	holders := strings.Join(e.Holders, ", ")
	if e.FreeMiB < 0 {
		return fmt.Sprintf("%v; GPU %d is open in %s", ErrNoAnswer, e.Device.Index, holders)
	}
	if holders == "" {
		holders = "held by nobody who can be seen"
	}
	return fmt.Sprintf("GPU %d has %s free, and %s is wanted: %s", e.Device.Index, gib(e.FreeMiB), gib(e.WantMiB), holders)
}

// WaitFree waits until enough memory of each wanted GPU is free and its use has not changed for a moment, as long as ctx
// allows, and returns in a few words what it found. Meanwhile it reports for whom it waits. The error is a *BusyError
// then, or one of Memory.
//
// Where nvidia-smi does not answer, the descriptors decide: memory of a GPU that no process has open is held by nobody.
func (s System) WaitFree(ctx context.Context, wants []Want, report func(text string)) (detail string, err error) {
	w := &waiter{system: s, wants: wants, report: report, began: time.Now()}
	w.deadline, _ = ctx.Deadline()
	err = s.WatchMemory(ctx, lookInterval, func(round []Memory) bool { return w.look(ctx, round) })
	switch {
	case err == nil:
		return w.detail(), nil
	case errors.Is(err, ErrNoAnswer), errors.Is(err, context.DeadlineExceeded) && w.last == nil:
		return s.byDescriptors(wants)
	case ctx.Err() != nil && w.last != nil && w.short != nil:
		w.short.Holders = w.holders
		return "", w.short
	case errors.Is(err, context.DeadlineExceeded):
		return "", errors.New("the GPUs' memory does not come to rest: another process takes and frees it")
	}
	return "", err
}

// waiter is one WaitFree under way.
type waiter struct {
	system         System
	wants          []Want
	report         func(string)
	began          time.Time
	deadline       time.Time
	last           []Memory  // of the wanted devices
	since          time.Time // since when last is as it is
	short          *BusyError
	holders        []string
	told, searched time.Time
}

// look takes one round, and reports whether the wait is over.
func (w *waiter) look(ctx context.Context, round []Memory) bool {
	now := time.Now()
	var mine []Memory
	w.short = nil
	for _, want := range w.wants {
		i := slices.IndexFunc(round, func(m Memory) bool { return m.UUID == want.Device.UUID })
		if i < 0 {
			w.short = &BusyError{Device: want.Device, Holders: []string{"nvidia-smi does not list it"}}
			continue
		}
		m := round[i]
		mine = append(mine, m)
		if wanted := int(want.Share * float64(m.TotalMiB)); m.FreeMiB < wanted && w.short == nil {
			w.short = &BusyError{Device: want.Device, FreeMiB: m.FreeMiB, WantMiB: wanted}
		}
	}
	if !same(mine, w.last) {
		w.last, w.since = mine, now
	}
	if w.short == nil {
		return now.Sub(w.since) >= stableFor
	}
	if now.Sub(w.told) >= reportInterval {
		w.told = now
		w.tell(ctx, now)
	}
	return false
}

// tell reports for whom the wait goes on. Who that is, is asked for only now and then: it takes another nvidia-smi.
func (w *waiter) tell(ctx context.Context, now time.Time) {
	const search = 5 * time.Second
	if now.Sub(w.began) > reportInterval && now.Sub(w.searched) >= search {
		w.searched = now
		if apps, err := w.system.Apps(ctx); err == nil {
			w.holders = HoldersOf(apps, w.short.Device.UUID)
		}
	}
	text := fmt.Sprintf("waiting for GPU %d to be released: %s", w.short.Device.Index, strings.Join(w.holders, ", "))
	if len(w.holders) == 0 {
		text = fmt.Sprintf("waiting for GPU %d to be released: %s free, %s wanted", w.short.Device.Index, gib(w.short.FreeMiB), gib(w.short.WantMiB))
	}
	text += fmt.Sprintf("; %s", now.Sub(w.began).Round(time.Second))
	if !w.deadline.IsZero() {
		text += fmt.Sprintf(" of %s", w.deadline.Sub(w.began).Round(time.Second))
	}
	w.report(text)
}

func (w *waiter) detail() string {
	most := 0
	for _, m := range w.last {
		most = max(most, m.UsedMiB)
	}
	noun := "GPUs"
	if len(w.last) == 1 {
		noun = "GPU"
	}
	return fmt.Sprintf("%d %s at %d MiB", len(w.last), noun, most)
}

func same(a, b []Memory) bool {
	return slices.EqualFunc(a, b, func(x, y Memory) bool {
		return x.UUID == y.UUID && x.UsedMiB-y.UsedMiB <= jitter && y.UsedMiB-x.UsedMiB <= jitter
	})
}

// HoldersOf names who holds memory of one GPU, for people: "58.6 GiB held by pid 8123 (python3, user root, a.service)".
func HoldersOf(apps []App, uuid string) []string {
	var names []string
	for _, app := range apps {
		if app.UUID != uuid {
			continue
		}
		who := fmt.Sprintf("pid %d, which cannot be seen here", app.PID)
		if p, err := proc.Read(app.PID); err == nil {
			who = p.String()
		}
		names = append(names, fmt.Sprintf("%s held by %s", gib(app.MiB), who))
	}
	return names
}

// onlyLooks is how many descriptors of a GPU's node a process has that holds no memory of it: so many has vLLM's API
// server on every GPU that it can see (measured, 0.25.1).
const onlyLooks = 3

// byDescriptors decides without nvidia-smi.
func (s System) byDescriptors(wants []Want) (string, error) {
	users, err := (proc.FS{Root: s.Root}).DeviceUsers("/dev/nvidia")
	if err != nil {
		return "", err
	}
	var devices []Device
	for _, want := range wants {
		devices = append(devices, want.Device)
		var pids []int
		for pid, counts := range users {
			if n := counts[want.Device.node()]; n > 0 && n != onlyLooks {
				pids = append(pids, pid)
			}
		}
		if len(pids) == 0 {
			continue
		}
		sort.Ints(pids)
		busy := &BusyError{Device: want.Device, FreeMiB: -1}
		for _, pid := range pids {
			if p, err := (proc.FS{Root: s.Root}).Read(pid); err == nil {
				busy.Holders = append(busy.Holders, p.String())
			}
		}
		return "", busy
	}
	return fmt.Sprintf("nvidia-smi does not answer; no process has %s open", Name(devices)), nil
}

func gib(mib int) string { return fmt.Sprintf("%.1f GiB", float64(mib)/1024) }
