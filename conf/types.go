package conf

// Profile is the whole host profile: host.toml merged with host.d/*.toml, defaults filled in.
// A Profile that Load returned without errors is complete and consistent: every name it mentions is defined.
type Profile struct {
	// Version of the profile's format. Always 1.
	Schema int `toml:"schema"`
	// What this machine is and where its models live.
	Host Host `toml:"host"`
	// vLLM installations, by name.
	Engines map[string]*Engine `toml:"engine"`
	// Directories of weights, by name.
	Models map[string]*Model `toml:"model"`
	// Ways to serve a model, by name. Each one becomes the unit vllm-NAME.service.
	Instances map[string]*Instance `toml:"instance"`

	// Files lists the files that were read, in merge order.
	Files []string `toml:"-"`
}

// Host is the [host] table.
type Host struct {
	// How many GPUs this host must have before anything may start: a number, "auto" for whatever is there, 0 for a CPU host.
	GPUs GPUCount `toml:"gpus"`
	// The only directories vllmhost may download to or delete from.
	ModelDirs []string `toml:"model_dirs"`
	// Disk space that is never planned away.
	Reserve Size `toml:"reserve"`
	// File with the Hugging Face token, owned by root and readable by nobody else. Only the download sees it, as a credential.
	HFTokenFile string `toml:"hf_token_file"`
}

// Engine is one [engine.NAME] table: one installation of vLLM.
type Engine struct {
	// The vllm program of this installation.
	Command string `toml:"command"`
	// Environment variables for every instance of this engine. No secrets: units are readable by everybody.
	Env map[string]string `toml:"env"`
	// Directories to search for helper programs (nvcc, ninja) after the directory of command and before the system's own.
	Path []string `toml:"path"`
}

// Model is one [model.NAME] table: a directory of weights, and where it came from.
type Model struct {
	// The directory with the weights.
	Path string `toml:"path"`
	// Repository on the Hugging Face Hub, as OWNER/NAME.
	Repo string `toml:"repo"`
	// Branch, tag or commit of the repository.
	Revision string `toml:"revision"`
}

// Instance is one [instance.NAME] table: one way to serve a model.
type Instance struct {
	// Name of the model to serve: a [model.NAME] table.
	Model string `toml:"model"`
	// Name of the engine to serve it with: an [engine.NAME] table.
	Engine string `toml:"engine"`
	// One line about this instance, for the unit's Description.
	Description string `toml:"description"`

	// TCP port to serve on. Either port or uds must be given.
	Port Port `toml:"port"`
	// Address to serve on.
	Host string `toml:"host"`
	// Unix socket to serve on, instead of a port.
	UDS string `toml:"uds"`
	// TLS certificate. Needs ssl_keyfile.
	SSLCertfile string `toml:"ssl_certfile"`
	// TLS private key. Needs ssl_certfile.
	SSLKeyfile string `toml:"ssl_keyfile"`
	// Names the model answers to. The first one labels the metrics.
	ServedModelName []string `toml:"served_model_name"`

	// GPUs to use: "all", a list of indices ([0, 1]), or a list of UUIDs ("GPU-..."). A CPU host has none.
	GPUs GPUs `toml:"gpus"`
	// GPUs that share one copy of the model.
	TensorParallelSize int `toml:"tensor_parallel_size"`
	// Groups of layers spread over GPUs.
	PipelineParallelSize int `toml:"pipeline_parallel_size"`
	// Copies of the model.
	DataParallelSize int `toml:"data_parallel_size"`
	// Share of each GPU's whole memory that the engine takes. vLLM's own default when it is not given.
	GPUMemoryUtilization float64 `toml:"gpu_memory_utilization"`
	// Whether other instances that also say so may use the same GPUs. Their gpu_memory_utilization must add up to at most 1.
	ShareGPUs bool `toml:"share_gpus"`

	// Further vLLM options: long flags without dashes. true gives --flag, false --no-flag, a list repeated values, a table JSON.
	Args Args `toml:"args"`
	// Environment variables, added to the engine's. No secrets: units are readable by everybody.
	Env map[string]string `toml:"env"`
	// File of environment variables for secrets such as VLLM_API_KEY. Root must own it and nobody else may read it.
	EnvFile string `toml:"env_file"`

	// System user to run as, instead of a dynamic user of its own (vllm-NAME). For NFS, say.
	User string `toml:"user"`
	// Group that may read the models.
	Group string `toml:"group"`
	// /dev/shm of the engine: "private" for one of its own, "host" for the host's.
	Shm Shm `toml:"shm"`
	// Size of a private /dev/shm. Sized for the number of GPUs when it is not given.
	ShmSize Size `toml:"shm_size"`

	// How long a stop waits for open requests to end. At least 1 s.
	DrainTimeout Duration `toml:"drain_timeout"`
	// How long a start may stand still: no new log line, nothing read, no memory taken.
	StallTimeout Duration `toml:"stall_timeout"`
	// How long a start may take in all.
	StartTimeout Duration `toml:"start_timeout"`

	// Whether the engine may see home directories: "yes" hides them, "read-only" shows them, "no" opens them.
	// For an engine or a model under /home.
	ProtectHome ProtectHome `toml:"protect_home"`
	// Directories the engine may write to, besides its cache.
	ReadWritePaths []string `toml:"read_write_paths"`
	// Address families the engine may use, besides AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK.
	RestrictAddressFamilies []string `toml:"restrict_address_families"`
	// System calls or groups (@group) the engine may use, besides @system-service.
	SystemCallFilter []string `toml:"system_call_filter"`
	// Device nodes the engine may use, besides the GPUs: /dev/infiniband, say.
	DeviceAllow []string `toml:"device_allow"`

	// Findings to accept: the finding's id, and why.
	Allow map[string]string `toml:"allow"`
	// What a started instance must prove.
	Probe Probe `toml:"probe"`
}

// Probe is the [instance.NAME.probe] table. Rates are output tokens per second.
type Probe struct {
	// Least tokens per second of one request alone.
	MinSingleTPS float64 `toml:"min_single_tps"`
	// Least tokens per second of all requests together, under load.
	MinLoadTPS float64 `toml:"min_load_tps"`
	// How much slower than its baseline an instance may be.
	MaxRegression Percent `toml:"max_regression"`
	// Whether a swap fails when foreign requests keep the load from being measured.
	RequireLoad bool `toml:"require_load"`
	// How long the first request after a start may take.
	FirstRequestTimeout Duration `toml:"first_request_timeout"`
	// Whether to ask for token probabilities: "auto" where that is known to be safe, "yes", "no".
	Logprobs Logprobs `toml:"logprobs"`
}
