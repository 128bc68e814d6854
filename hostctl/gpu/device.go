package gpu

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Device is one GPU as the driver lists it.
type Device struct {
	Index int    // in the order of bus ids: nvidia-smi's, and CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID
	UUID  string // "GPU-..."
	Model string // "NVIDIA H200"
	BusID string // "0000:06:00.0"
	Minor int    // its node is /dev/nvidiaMINOR
}

// Devices returns the GPUs that the loaded driver has, or ErrNoDriver. It asks /proc/driver/nvidia/gpus, which answers
// also when nvidia-smi does not.
func (s System) Devices() ([]Device, error) {
	if _, err := os.Stat(s.path("/proc/driver/nvidia/version")); errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoDriver
	}
	dir := s.path("/proc/driver/nvidia/gpus")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list the GPUs: %v", err)
	}
	var devices []Device
	for _, e := range entries { // sorted by name, which is the bus id
		fields, err := readFields(filepath.Join(dir, e.Name(), "information"))
		if err != nil {
			return nil, fmt.Errorf("cannot read the GPU %q: %v", e.Name(), err)
		}
		minor, err := strconv.Atoi(fields["Device Minor"])
		if err != nil {
			return nil, fmt.Errorf("cannot read the GPU %q: its minor number is %q", e.Name(), fields["Device Minor"])
		}
		devices = append(devices, Device{Index: len(devices), UUID: fields["GPU UUID"], Model: fields["Model"], BusID: e.Name(), Minor: minor})
	}
	return devices, nil
}

// readFields reads lines "Name: value".
func readFields(path string) (map[string]string, error) {
	text, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		fields[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return fields, nil
}

// Choose returns every device, or those that ids name: indices, or UUIDs or the beginnings of such, as
// CUDA_VISIBLE_DEVICES takes them.
func Choose(all []Device, every bool, ids []string) ([]Device, error) {
	if every {
		if len(all) == 0 {
			return nil, errors.New("this host has no GPU")
		}
		return all, nil
	}
	var chosen []Device
	for _, id := range ids {
		i := slices.IndexFunc(all, func(d Device) bool {
			return strconv.Itoa(d.Index) == id || strings.HasPrefix(id, "GPU-") && strings.HasPrefix(d.UUID, id)
		})
		if i < 0 {
			return nil, fmt.Errorf("no GPU %s: this host has %s", id, Name(all))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Name names devices by their indices, for people: "GPU 0", "GPUs 0-3,5", "none".
func Name(devices []Device) string {
	var parts []string
	for i := 0; i < len(devices); {
		j := i
		for j+1 < len(devices) && devices[j+1].Index == devices[j].Index+1 {
			j++
		}
		part := strconv.Itoa(devices[i].Index)
		if j > i {
			part += "-" + strconv.Itoa(devices[j].Index)
		}
		parts = append(parts, part)
		i = j + 1
	}
	switch len(devices) {
	case 0:
		return "none"
	case 1:
		return "GPU " + parts[0]
	}
	return "GPUs " + strings.Join(parts, ",")
}

func (d Device) node() string { return "/dev/nvidia" + strconv.Itoa(d.Minor) }

// MissingNodes returns the device nodes that a process needs to use the devices and that do not exist, or not yet: the
// driver's tools make them at boot.
func (s System) MissingNodes(devices []Device) []string {
	nodes := []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}
	for _, d := range devices {
		nodes = append(nodes, d.node())
	}
	return slices.DeleteFunc(nodes, func(node string) bool {
		_, err := os.Stat(s.path(node))
		return err == nil
	})
}

func (s System) path(p string) string { return filepath.Join("/", s.Root, p) }

// readSmall reads a file of at most 64 KiB.
func readSmall(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	return string(text), err
}
