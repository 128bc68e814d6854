package gate

import (
	"context"
	"fmt"

	"vllmhost/unitgen"
)

// leastCache is the part of the KV cache that an instance's share of its GPUs should leave, below which something else
// had the memory while it was sized. Activations and graphs take what is missing to 1.
const leastCache = 0.5

// compareCache warns when an instance that shares its GPUs got far less KV cache than its share should give: engines that
// size their memory while others take or free some do so wrongly, and serve all the same (vllm issue 55827; measured:
// 1.2 of 55 GiB).
func (a *Await) compareCache(ctx context.Context, s unitgen.Section, log *load) {
	cache, cacheKnown := log.kvCache()
	weights, weightsKnown := log.weights()
	if !s.ShareGPUs || !cacheKnown || !weightsKnown {
		return
	}
	devices, err := devicesOf(a.GPUs, s)
	if err != nil || len(devices) == 0 {
		return
	}
	memory, err := a.GPUs.Memory(ctx)
	if err != nil {
		return
	}
	for _, m := range memory {
		if m.UUID != devices[0].UUID {
			continue
		}
		share := s.GPUUtilization*float64(m.TotalMiB)/1024 - weights
		if cache >= leastCache*share {
			return
		}
		a.Log.Warn(fmt.Sprintf("the KV cache has %.1f GiB, its share of the GPUs should give about %.1f: something else had the memory while it was sized. "+
			"To type: systemctl restart %s", cache, share, unitgen.UnitName(s.Instance)))
		a.Notify(fmt.Sprintf("STATUS=Serving, with %.1f of about %.1f GiB of KV cache", cache, share))
		return
	}
}
