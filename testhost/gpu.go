package testhost

import (
	"errors"
	"os"

	"vllmhost/testhost/fakegpu"
)

// installGPUs puts the faked driver on the host's disk.
func (h *Host) installGPUs() error {
	if h.opts.GPUs == 0 {
		return nil
	}
	if h.opts.Payload.SMI == "" {
		return errors.New("GPUs are faked with an nvidia-smi: Payload.SMI is empty")
	}
	smi, err := os.ReadFile(h.opts.Payload.SMI)
	if err != nil {
		return err
	}
	return fakegpu.Install(h.root(), h.opts.GPUs, smi)
}
