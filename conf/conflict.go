package conf

import (
	"fmt"
	"maps"
	"slices"
)

// defaultUtilization is what vLLM takes of each GPU when nobody says (0.92 since its version 0.20, 0.90 before).
const defaultUtilization = 0.92

// InstanceNames returns the names of the instances, sorted.
func (p *Profile) InstanceNames() []string { return slices.Sorted(maps.Keys(p.Instances)) }

// Conflicts reports whether two instances cannot run at the same time.
func (p *Profile) Conflicts(a, b string) bool { return p.ConflictReason(a, b) != "" }

// ConflictReason says why two instances cannot run at the same time: "both use GPUs 0-3", "both use port 8000". It
// returns "" when they can, also for an instance with itself and for a name that does not exist. Instances share a GPU
// when both say so with share_gpus, and their gpu_memory_utilization add up to at most 1.
func (p *Profile) ConflictReason(a, b string) string {
	x, y := p.Instances[a], p.Instances[b]
	if x == nil || y == nil || a == b {
		return ""
	}
	if gpus := x.contested(y); gpus.Any() {
		if x.ShareGPUs && y.ShareGPUs {
			return fmt.Sprintf("both use %s, and together more than all of the memory", gpus.words())
		}
		return "both use " + gpus.words()
	}
	return x.sameAddress(y)
}

// contested returns the GPUs that both use and cannot share.
func (in *Instance) contested(other *Instance) GPUs {
	const rounding = 1e-9
	if in.ShareGPUs && other.ShareGPUs && in.utilization()+other.utilization() <= 1+rounding {
		return GPUs{}
	}
	return in.GPUs.shared(other.GPUs)
}

func (in *Instance) utilization() float64 {
	if in.GPUMemoryUtilization == 0 {
		return defaultUtilization
	}
	return in.GPUMemoryUtilization
}

// sameAddress says which port or socket both use, or "".
func (in *Instance) sameAddress(other *Instance) string {
	switch {
	case in.Port != 0 && in.Port == other.Port:
		return fmt.Sprintf("both use port %d", in.Port)
	case in.UDS != "" && in.UDS == other.UDS:
		return "both use " + in.UDS
	}
	return ""
}

// words names the GPUs in a sentence: "GPUs 0-3", "GPU 0", "all GPUs".
func (g GPUs) words() string {
	switch {
	case g.All:
		return "all GPUs"
	case g.Count() == 1:
		return "GPU " + g.String()
	}
	return "GPUs " + g.String()
}
