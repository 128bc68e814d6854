package conf

import "time"

// defaultHost is a [host] table without keys.
func defaultHost() Host {
	return Host{
		GPUs:      Auto,
		ModelDirs: []string{"/srv/models"},
		Reserve:   50e9,
	}
}

// setDefaults makes a new *Engine, *Model or *Instance what its table is without keys. Defaults that depend on other
// keys follow in fillDefaults.
func setDefaults(table any) {
	switch t := table.(type) {
	case *Model:
		t.Revision = "main"
	case *Instance:
		*t = Instance{
			Host:                 "0.0.0.0",
			TensorParallelSize:   1,
			PipelineParallelSize: 1,
			DataParallelSize:     1,
			Group:                "vllm",
			Shm:                  ShmPrivate,
			DrainTimeout:         Duration(30 * time.Second),
			StallTimeout:         Duration(15 * time.Minute),
			StartTimeout:         Duration(2 * time.Hour),
			ProtectHome:          ProtectHomeYes,
			Probe: Probe{
				MaxRegression:       0.10,
				FirstRequestTimeout: Duration(10 * time.Minute),
				Logprobs:            LogprobsAuto,
			},
		}
	}
}

// fillDefaults gives keys that are not in the profile the values that follow from other keys.
func (p *Profile) fillDefaults(root *node) {
	for name, in := range p.Instances {
		given := root.find("instance", name)
		if given.child("served_model_name") == nil && in.Model != "" {
			in.ServedModelName = []string{in.Model}
		}
		if given.child("gpus") == nil {
			in.GPUs.All = p.Host.GPUs != 0
		}
		if given.child("stall_timeout") == nil {
			in.StallTimeout = min(in.StallTimeout, in.StartTimeout)
		}
	}
}
