package shm

import (
	"regexp"
	"strconv"
	"sync"
)

// family is a kind of file that an engine's libraries leave in /dev/shm when they are killed.
type family struct {
	maker   string
	pattern *regexp.Regexp // the first group, if there is one, is the pid of the maker
}

// families are those seen of vLLM 0.25 on GPUs and 0.32 on CPUs, and those that its sources and reports of users name.
// They are compiled when they are first needed: most processes of this program never are.
var families = sync.OnceValue(func() []family {
	return []family{
		{"multiprocessing's shared memory", regexp.MustCompile(`^psm_[0-9a-f]{8}$`)},
		{"multiprocessing's semaphores", regexp.MustCompile(`^sem\.mp-[a-z0-9_]{8}$`)},
		{"loky's semaphores", regexp.MustCompile(`^sem\.loky-([1-9]\d{0,9})-[a-z0-9_]{1,32}$`)},
		{"torch's shared memory", regexp.MustCompile(`^torch_([1-9]\d{0,9})_[0-9A-Za-z_]{1,64}$`)},
		{"vLLM's offloaded KV cache", regexp.MustCompile(`^vllm_(?:offload|ec)_[0-9A-Za-z-]{1,64}\.mmap$`)},
		{"vLLM's object store", regexp.MustCompile(`^VLLM_OBJECT_STORAGE_SHM_BUFFER_[0-9a-f]{1,64}$`)},
		{"vLLM's CPU workers", regexp.MustCompile(`^vllm_dist_[0-9a-f]{32}(?:-[a-z0-9:_\[\]-]{1,64})?-cpushm_\d{1,5}$`)},
		{"NCCL", regexp.MustCompile(`^nccl-[0-9A-Za-z]{6}$`)},
		{"NVSHMEM", regexp.MustCompile(`^nvshmem-shm[0-9A-Za-z_-]{0,64}$`)},
		{"kvcached", regexp.MustCompile(`^kvcached_vLLM_([1-9]\d{0,9})$`)},
	}
})

// familyOf finds the family of a name, and the pid of the maker where the name has it, else 0.
func familyOf(name string) (maker string, pid int, ok bool) {
	for _, f := range families() {
		found := f.pattern.FindStringSubmatch(name)
		if found == nil {
			continue
		}
		if len(found) > 1 {
			pid, _ = strconv.Atoi(found[1])
		}
		return f.maker, pid, true
	}
	return "", 0, false
}
