package unitgen

import (
	"fmt"
	"slices"
	"strings"
)

// Conflict says why two instances cannot run together, or returns "" when they can. It is derived from what their
// units say, never declared: they share a port, a socket path, or a GPU without leave to share it.
func Conflict(a, b Section) string {
	switch {
	case a.Instance == b.Instance:
		return ""
	case a.Port != 0 && a.Port == b.Port:
		return fmt.Sprintf("both use port %d", a.Port)
	case a.UDS != "" && a.UDS == b.UDS:
		return "both use " + a.UDS
	}
	gpus := sharedGPUs(a, b)
	if gpus == "" {
		return ""
	}
	if a.ShareGPUs && b.ShareGPUs {
		if a.GPUUtilization > 0 && b.GPUUtilization > 0 && a.GPUUtilization+b.GPUUtilization <= wholeGPU {
			return ""
		}
		return fmt.Sprintf("both use %s, and together more than all of its memory", gpus)
	}
	return "both use " + gpus
}

// wholeGPU is all of a GPU's memory, with room for the rounding of sums.
const wholeGPU = 1 + 1e-9

// Crowd says on which GPU instances that may share it, each with each, want more than all of its memory together, or
// returns "".
func Crowd(sections []Section) string {
	for _, a := range sections {
		ids := a.GPUs
		if a.AllGPUs {
			ids = []string{"all"}
		}
		for _, id := range ids {
			var names []string
			sum := 0.0
			for _, b := range sections {
				if sharedGPUs(Section{GPUs: []string{id}, AllGPUs: a.AllGPUs}, b) != "" {
					names = append(names, b.Instance)
					sum += b.GPUUtilization
				}
			}
			if len(names) > 2 && sum > wholeGPU {
				return fmt.Sprintf("%s together want %.0f %% of the memory of %s", strings.Join(names, ", "), 100*sum, gpuList([]string{id}))
			}
		}
	}
	return ""
}

// SharesGPU reports whether both use one of the same GPUs.
func SharesGPU(a, b Section) bool { return sharedGPUs(a, b) != "" }

// sharedGPUs names the GPUs that both use, or returns "". Indices and UUIDs cannot be compared here: which GPU has
// which UUID is known on the host only, so such a pair counts as shared.
func sharedGPUs(a, b Section) string {
	switch {
	case !a.UsesGPUs() || !b.UsesGPUs():
		return ""
	case a.AllGPUs && b.AllGPUs:
		return "all GPUs"
	case a.AllGPUs:
		return gpuList(b.GPUs)
	case b.AllGPUs:
		return gpuList(a.GPUs)
	case isUUID(a.GPUs[0]) != isUUID(b.GPUs[0]):
		return fmt.Sprintf("GPUs that may be the same (%s; %s)", gpuList(a.GPUs), gpuList(b.GPUs))
	}
	both := slices.DeleteFunc(slices.Clone(a.GPUs), func(id string) bool { return !slices.Contains(b.GPUs, id) })
	if len(both) == 0 {
		return ""
	}
	return gpuList(both)
}

// UsesGPUs reports whether the instance runs on GPUs.
func (s Section) UsesGPUs() bool { return s.AllGPUs || len(s.GPUs) > 0 }

func isUUID(id string) bool { return strings.HasPrefix(id, "GPU-") || strings.HasPrefix(id, "MIG-") }

func gpuList(ids []string) string {
	if len(ids) == 1 && ids[0] == "all" {
		return "all GPUs"
	}
	if len(ids) == 1 {
		return "GPU " + ids[0]
	}
	return "GPUs " + strings.Join(ids, ", ")
}

// GPUText names an instance's GPUs for people: "all", "0-3", "0,2", a list of UUIDs, or "-" for none.
func (s Section) GPUText() string {
	switch {
	case s.AllGPUs && s.GPUCount > 1:
		return fmt.Sprintf("0-%d", s.GPUCount-1)
	case s.AllGPUs && s.GPUCount == 1:
		return "0"
	case s.AllGPUs:
		return "all"
	case len(s.GPUs) == 0:
		return "-"
	case isUUID(s.GPUs[0]):
		return strings.Join(s.GPUs, ",")
	}
	return ranges(s.GPUs)
}

// ranges joins neighbouring indices: 0,1,2,5 is "0-2,5".
func ranges(ids []string) string {
	var parts []string
	var nums []int
	for _, id := range ids {
		var n int
		if _, err := fmt.Sscanf(id, "%d", &n); err != nil {
			return strings.Join(ids, ",")
		}
		nums = append(nums, n)
	}
	for i := 0; i < len(nums); {
		j := i
		for j+1 < len(nums) && nums[j+1] == nums[j]+1 {
			j++
		}
		part := fmt.Sprint(nums[i])
		if j > i {
			part = fmt.Sprintf("%d-%d", nums[i], nums[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// Where names what an instance listens on, for people: "port 8000" or a socket's path.
func (s Section) Where() string {
	if s.UDS != "" {
		return s.UDS
	}
	return fmt.Sprintf("port %d", s.Port)
}
