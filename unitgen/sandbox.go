package unitgen

import (
	"path"
	"strconv"
	"strings"

	"vllmhost/conf"
)

// sandbox writes the least privileges with which vLLM was seen to serve, on a CPU and on NVIDIA GPUs; see
// systemd.exec(5) for each line. The profile's relaxations are the only way to more. What is left out and why:
// MemoryDenyWriteExecute= (a CPU engine starts, is healthy, and dies at its first token), ProcSubset=pid (torch reads
// /proc/cpuinfo and /proc/meminfo), SystemCallFilter=~@resources (sched_setaffinity).
func (j job) sandbox(w *writer) {
	in := j.instance
	w.why("The system and the models are read-only.")
	w.set("ProtectSystem", "strict")
	w.set("ProtectHome", string(in.ProtectHome))
	if dirs := j.writable(); len(dirs) > 0 {
		w.set("ReadWritePaths", quoteAll(dirs))
	}
	w.set("PrivateTmp", "yes")
	j.sharedMemory(w)
	j.devices(w)
	for _, key := range []string{
		"NoNewPrivileges", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs",
		"ProtectControlGroups", "ProtectHostname", "PrivateMounts", "PrivateIPC", "RestrictNamespaces", "RestrictRealtime",
		"RestrictSUIDSGID", "LockPersonality",
	} {
		w.set(key, "yes")
	}
	w.set("ProtectProc", "invisible")
	w.set("KeyringMode", "private")
	w.set("CapabilityBoundingSet", "")
	w.set("SystemCallArchitectures", "native")
	w.set("SystemCallFilter", strings.Join(append([]string{"@system-service"}, in.SystemCallFilter...), " "))
	w.set("SystemCallFilter", "~@privileged")
	families := append([]string{"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}, in.RestrictAddressFamilies...)
	w.set("RestrictAddressFamilies", strings.Join(families, " "))
	if in.UDS != "" {
		w.why("Whoever may write to the socket may connect; its directory decides who reaches it.")
		w.set("UMask", "0000")
	} else {
		w.set("UMask", "0077")
	}
}

// writable lists directories outside the sandbox's own that the engine may write to.
func (j job) writable() []string {
	dirs := append([]string(nil), j.instance.ReadWritePaths...)
	if uds := j.instance.UDS; uds != "" && path.Dir(uds) != runtimeRoot+"vllm/"+j.name {
		dirs = append(dirs, path.Dir(uds))
	}
	return dirs
}

func (j job) sharedMemory(w *writer) {
	if j.instance.Shm == conf.ShmHost {
		w.why("The host's /dev/shm: \"vllmhost clean\" removes what an engine leaves there.")
		if j.instance.User == "" {
			return
		}
		w.set("RemoveIPC", "no")
		return
	}
	w.why("A /dev/shm of its own: what an engine leaves there ends with it.")
	w.set("TemporaryFileSystem", "/dev/shm:mode=1777,size="+sizeText(j.shmSize()))
	w.set("RemoveIPC", "yes")
}

// shmSize is the profile's size, or one sized for the ring buffers of every worker (up to 240 MiB each, and 160 MiB
// of the engine core; "vllm_offload" pools need a size in the profile).
func (j job) shmSize() int64 {
	if j.instance.ShmSize > 0 {
		return int64(j.instance.ShmSize)
	}
	const base, perWorker = 1 << 30, 512 << 20
	workers := max(1, j.instance.TensorParallelSize) * max(1, j.instance.PipelineParallelSize) * max(1, j.instance.DataParallelSize)
	return base + int64(workers)*perWorker
}

// sizeText writes bytes as systemd reads them, in mebibytes where it can.
func sizeText(n int64) string {
	if n%(1<<20) == 0 {
		return strconv.FormatInt(n>>20, 10) + "M"
	}
	return strconv.FormatInt(n, 10)
}

func (j job) devices(w *writer) {
	if j.gpu {
		w.why("No PrivateDevices=, ProtectClock= or DevicePolicy=: each hides the GPUs, or those that appear later.")
		w.set("LimitMEMLOCK", "infinity")
		return
	}
	w.set("PrivateUsers", "yes")
	if len(j.instance.DeviceAllow) == 0 {
		w.set("PrivateDevices", "yes")
		w.set("ProtectClock", "yes")
		return
	}
	w.why("The pseudo devices, and these.")
	w.set("DevicePolicy", "closed")
	for _, d := range j.instance.DeviceAllow {
		w.set("DeviceAllow", Quote(d)+" rw")
	}
}
