package main

import (
	_ "embed"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"vllmhost/testhost"
)

// hostFlags choose the host that a command boots.
type hostFlags struct {
	release string
	hybrid  bool
	gpus    int
	bare    bool
}

func (f *hostFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.release, "release", string(testhost.Trixie), "Debian release: bookworm or trixie")
	cmd.Flags().BoolVar(&f.hybrid, "hybrid", false, "hybrid cgroups instead of v2 alone")
	cmd.Flags().IntVar(&f.gpus, "gpus", 2, "faked GPUs")
	cmd.Flags().BoolVar(&f.bare, "bare", false, "a Debian without the package")
}

// boot opens a lab and boots a host with the sample profile and its models.
func (f *hostFlags) boot(cmd *cobra.Command) (*testhost.Lab, *testhost.Host, error) {
	release, err := testhost.ParseRelease(f.release)
	if err != nil {
		return nil, nil, err
	}
	opts := testhost.Options{Release: release, GPUs: f.gpus}
	if f.hybrid {
		opts.Cgroups = testhost.Hybrid
	}
	payload, err := testhost.FindPayload(".")
	if err != nil {
		return nil, nil, err
	}
	opts.Payload = testhost.Payload{SMI: payload.SMI}
	if !f.bare {
		opts.Payload, opts.Models = payload, sampleModels()
	}
	lab, err := testhost.Open(cmd.ErrOrStderr())
	if err != nil {
		return nil, nil, err
	}
	lab.CloseOnSignal()
	h, err := lab.Boot(cmd.Context(), opts)
	if err != nil {
		return nil, nil, joinClose(err, lab)
	}
	if !f.bare {
		profile := strings.ReplaceAll(sampleProfile, "@GPUS@", fmt.Sprint(f.gpus))
		if err := h.WriteFile(cmd.Context(), "/etc/vllmhost/host.toml", []byte(profile), 0o644); err != nil {
			return nil, nil, joinClose(err, lab)
		}
	}
	return lab, h, nil
}

func joinClose(err error, lab *testhost.Lab) error {
	if closing := lab.Close(); closing != nil {
		return fmt.Errorf("%w; and %v", err, closing)
	}
	return err
}

//go:embed sample.toml
var sampleProfile string

// sampleModels are those of the sample profile, small and quick to load.
func sampleModels() []testhost.Model {
	const quick = "VLLMSIM_IMPORT_TIME=300ms\nVLLMSIM_LOAD_TIME=2s\n"
	const slow = "VLLMSIM_IMPORT_TIME=300ms\nVLLMSIM_LOAD_TIME=4s\n" // to be looked at while it loads
	return []testhost.Model{
		{Name: "MiniMax-M2.5", Shards: 16, Bytes: 32 << 20, Sim: slow},
		{Name: "Kimi-K2.5", Shards: 8, Bytes: 16 << 20, Sim: quick},
		{Name: "Kimi-K2.5-NVFP4", Shards: 4, Bytes: 8 << 20, Sim: quick},
		{Name: "GLM-5", Shards: 4, Bytes: 8 << 20, Sim: quick + "VLLMSIM_FAIL_AT=50\n"},
	}
}

// environment is what a terminal's programs want to know.
func environment() []string {
	if term, ok := os.LookupEnv("TERM"); ok {
		return []string{"TERM=" + term}
	}
	return nil
}
