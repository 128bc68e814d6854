package fakegpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Refusal is what nvidia-smi says, in its own words, to a command line that
// it does not take. It then exits with 2.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// A column is one field of --query-gpu or --query-compute-apps.
type column[T any] struct {
	unit  string
	value func(s State, row T) string
}

func gpuColumns() map[string]column[GPU] {
	constant := func(unit, value string) column[GPU] {
		return column[GPU]{unit, func(State, GPU) string { return value }}
	}
	busID := column[GPU]{"", func(_ State, g GPU) string { return g.SMIBusID() }}
	uuid := column[GPU]{"", func(_ State, g GPU) string { return g.UUID }}
	return map[string]column[GPU]{
		"index":        {"", func(_ State, g GPU) string { return strconv.Itoa(g.Index) }},
		"uuid":         uuid,
		"gpu_uuid":     uuid,
		"name":         {"", func(_ State, g GPU) string { return g.Name }},
		"gpu_name":     {"", func(_ State, g GPU) string { return g.Name }},
		"pci.bus_id":   busID,
		"gpu_bus_id":   busID,
		"memory.total": {"MiB", func(_ State, g GPU) string { return strconv.Itoa(g.TotalMiB) }},
		"memory.used":  {"MiB", func(s State, g GPU) string { return strconv.Itoa(s.UsedMiB[g.Index]) }},
		"memory.free": {"MiB", func(s State, g GPU) string {
			return strconv.Itoa(max(0, g.TotalMiB-freeGap-s.UsedMiB[g.Index]))
		}},
		"count":              {"", func(s State, _ GPU) string { return strconv.Itoa(len(s.GPUs)) }},
		"driver_version":     constant("", Version),
		"compute_cap":        constant("", "9.0"),
		"compute_mode":       constant("", "Default"),
		"mig.mode.current":   constant("", "Disabled"),
		"persistence_mode":   constant("", "Enabled"),
		"power.limit":        constant("W", "700.00"),
		"power.draw":         constant("W", "129.00"),
		"temperature.gpu":    constant("", "41"),
		"utilization.gpu":    constant("%", "0"),
		"utilization.memory": constant("%", "0"),
		"pstate":             constant("", "P0"),
	}
}

func appColumns() map[string]column[Holder] {
	gpu := func(s State, h Holder) GPU {
		return s.GPUs[slices.IndexFunc(s.GPUs, func(g GPU) bool { return g.Index == h.GPU })]
	}
	memory := column[Holder]{"MiB", func(_ State, h Holder) string { return strconv.Itoa(h.MiB) }}
	name := column[Holder]{"", func(_ State, h Holder) string { return h.Name }}
	return map[string]column[Holder]{
		"pid":             {"", func(_ State, h Holder) string { return strconv.Itoa(h.PID) }},
		"process_name":    name,
		"name":            name,
		"gpu_uuid":        {"", func(s State, h Holder) string { return gpu(s, h).UUID }},
		"gpu_bus_id":      {"", func(s State, h Holder) string { return gpu(s, h).SMIBusID() }},
		"gpu_name":        {"", func(s State, h Holder) string { return gpu(s, h).Name }},
		"used_gpu_memory": memory,
		"used_memory":     memory,
	}
}

// Format is the value of --format.
type Format struct{ NoHeader, NoUnits bool }

// ParseFormat reads "csv[,noheader][,nounits]".
func ParseFormat(text string) (Format, error) {
	var f Format
	csv := false
	for word := range strings.SplitSeq(text, ",") {
		switch strings.TrimSpace(word) {
		case "csv":
			csv = true
		case "noheader":
			f.NoHeader = true
		case "nounits":
			f.NoUnits = true
		default:
			return f, Refusal("\"" + word + "\" is not a recognized format option")
		}
	}
	if !csv {
		return f, Refusal("must specify a format of \"csv\"")
	}
	return f, nil
}

// QueryGPU answers --query-gpu for the GPUs that keep accepts.
func (s State) QueryGPU(fields string, f Format, keep func(GPU) bool) (string, error) {
	var rows []GPU
	for _, g := range s.GPUs {
		if keep(g) {
			rows = append(rows, g)
		}
	}
	return csv(s, rows, gpuColumns(), fields, f)
}

// QueryComputeApps answers --query-compute-apps.
func (s State) QueryComputeApps(fields string, f Format, keep func(GPU) bool) (string, error) {
	var rows []Holder
	for _, h := range s.Holders {
		i := slices.IndexFunc(s.GPUs, func(g GPU) bool { return g.Index == h.GPU })
		if i >= 0 && keep(s.GPUs[i]) {
			rows = append(rows, h)
		}
	}
	return csv(s, rows, appColumns(), fields, f)
}

func csv[T any](s State, rows []T, known map[string]column[T], fields string, f Format) (string, error) {
	var columns []column[T]
	var header []string
	for name := range strings.SplitSeq(fields, ",") {
		name = strings.TrimSpace(name)
		c, ok := known[name]
		if !ok {
			return "", Refusal("Field \"" + name + "\" is not a valid field to query.")
		}
		columns = append(columns, c)
		if c.unit != "" && !f.NoUnits {
			name += " [" + c.unit + "]"
		}
		header = append(header, name)
	}
	var b strings.Builder
	if !f.NoHeader {
		b.WriteString(strings.Join(header, ", ") + "\n")
	}
	for _, row := range rows {
		var values []string
		for _, c := range columns {
			value := c.value(s, row)
			if c.unit != "" && !f.NoUnits {
				value += " " + c.unit
			}
			values = append(values, value)
		}
		b.WriteString(strings.Join(values, ", ") + "\n")
	}
	return b.String(), nil
}

// List answers -L.
func (s State) List() string {
	var b strings.Builder
	for _, g := range s.GPUs {
		fmt.Fprintf(&b, "GPU %d: %s (UUID: %s)\n", g.Index, g.Name, g.UUID)
	}
	return b.String()
}

// Summary is a short form of what nvidia-smi says without arguments.
func (s State) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "NVIDIA-SMI %s   Driver Version: %s   CUDA Version: 13.0\n", Version, Version)
	for _, g := range s.GPUs {
		fmt.Fprintf(&b, "| %3d  %-20s %s | %6dMiB / %6dMiB |\n", g.Index, g.Name, g.SMIBusID(), s.UsedMiB[g.Index], g.TotalMiB)
	}
	if len(s.Holders) == 0 {
		b.WriteString("No running processes found\n")
	}
	for _, h := range s.Holders {
		fmt.Fprintf(&b, "| %3d  %8d  C  %-40s %6dMiB |\n", h.GPU, h.PID, h.Name, h.MiB)
	}
	return b.String()
}
