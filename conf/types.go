package conf

// Profile is the whole host profile: host.toml merged with host.d/*.toml, defaults filled in.
// A Profile that Load returned without errors is complete and consistent: every name it mentions is defined.
type Profile struct {
	// Version of the profile's format. Always 1.
	//
	//	schema = 1
	Schema int `toml:"schema" default:"required"`
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

// Host is the [host] table: what this machine is and where its models live.
type Host struct {
	// How many GPUs this host must have before anything may start: a number from 0 to 1024, or "auto" for whatever is
	// there. 0 is a CPU host.
	//
	//	gpus = 8
	GPUs GPUCount `toml:"gpus"`
	// The only directories vllmhost may download to or delete from. A model outside of them gives a warning.
	//
	//	model_dirs = ["/srv/models"]
	ModelDirs []string `toml:"model_dirs"`
	// Disk space on the file systems of model_dirs that is never planned away.
	//
	//	reserve = "50GB"
	Reserve Size `toml:"reserve"`
	// File with the Hugging Face token. Only the download sees it, as a credential. The rules for files with secrets
	// apply.
	//
	//	hf_token_file = "/etc/vllmhost/secrets/hf-token"
	HFTokenFile string `toml:"hf_token_file"`
}

// Engine is one [engine.NAME] table: one installation of vLLM.
type Engine struct {
	// The vllm program of this installation.
	//
	//	command = "/opt/vllm/bin/vllm"
	Command string `toml:"command" default:"required"`
	// Environment variables for every instance of this engine. The rules for the environment apply.
	//
	//	env = { NCCL_P2P_LEVEL = "SYS" }
	Env map[string]string `toml:"env"`
	// Directories to search for helper programs (nvcc, ninja) after the directory of command and before the system's
	// own.
	//
	//	path = ["/usr/local/cuda/bin"]
	Path []string `toml:"path"`
}

// Model is one [model.NAME] table: a directory of weights, and where it came from.
type Model struct {
	// The directory with the weights.
	//
	//	path = "/srv/models/Kimi-K2.5"
	Path string `toml:"path" default:"required"`
	// Repository on the Hugging Face Hub, as OWNER/NAME. To fetch the model and to verify it against.
	//
	//	repo = "moonshotai/Kimi-K2.5"
	Repo string `toml:"repo"`
	// Branch, tag or commit of the repository. Needs repo.
	//
	//	revision = "main"
	Revision string `toml:"revision"`
}

// Instance is one [instance.NAME] table: one way to serve a model. It becomes the unit vllm-NAME.service.
type Instance struct {
	// Name of the model to serve: a [model.NAME] table.
	//
	//	model = "kimi-int4"
	Model string `toml:"model" default:"required"`
	// Name of the engine to serve it with: an [engine.NAME] table.
	//
	//	engine = "nightly"
	Engine string `toml:"engine" default:"required"`
	// One line about this instance, for the unit's Description. At most 200 characters.
	//
	//	description = "Kimi K2.5 INT4, eight GPUs"
	Description string `toml:"description" default:"made from the names of the instance, the model's repository and the port"`

	// TCP port to serve on, 1 to 65535. Either port or uds must be given. An engine has no right to use a port below
	// 1024.
	//
	//	port = 8000
	Port Port `toml:"port" default:"required, unless there is uds"`
	// Address to serve on: an IPv4 or IPv6 address of this host, or "0.0.0.0" or "::" for all of them.
	//
	//	host = "127.0.0.1"
	Host string `toml:"host"`
	// Unix socket to serve on, instead of a port. Its directory must exist, except /run/vllm/NAME, which the unit makes.
	// At most 107 bytes.
	//
	//	uds = "/run/vllm/kimi-int4/api.sock"
	UDS string `toml:"uds"`
	// TLS certificate, with the chain. Needs ssl_keyfile. The engine's user must be able to read both.
	//
	//	ssl_certfile = "/etc/vllmhost/tls/host.pem"
	SSLCertfile string `toml:"ssl_certfile"`
	// TLS private key. Needs ssl_certfile.
	//
	//	ssl_keyfile = "/etc/vllmhost/tls/host.key"
	SSLKeyfile string `toml:"ssl_keyfile"`
	// Names the model answers to. The first one labels the metrics.
	//
	//	served_model_name = ["kimi-k2.5", "kimi"]
	ServedModelName []string `toml:"served_model_name" default:"the name of the model"`

	// GPUs to use: "all", a list of indices in PCI bus order, or a list of UUIDs as nvidia-smi -L prints them. [] uses
	// none.
	//
	//	gpus = [0, 1, 2, 3, 4, 5, 6, 7]
	GPUs GPUs `toml:"gpus" default:"\"all\"; none where the host has gpus = 0"`
	// GPUs that share one copy of the model, 1 to 1024.
	//
	//	tensor_parallel_size = 8
	TensorParallelSize int `toml:"tensor_parallel_size"`
	// Groups of layers spread over GPUs, 1 to 1024.
	//
	//	pipeline_parallel_size = 1
	PipelineParallelSize int `toml:"pipeline_parallel_size"`
	// Copies of the model, 1 to 1024. The product of the three sizes may not exceed the number of GPUs, where it is
	// known.
	//
	//	data_parallel_size = 1
	DataParallelSize int `toml:"data_parallel_size"`
	// Share of each GPU's whole memory that the engine takes, above 0 and at most 1.
	//
	//	gpu_memory_utilization = 0.92
	GPUMemoryUtilization float64 `toml:"gpu_memory_utilization" default:"vLLM's own"`
	// Whether other instances that also say so may use the same GPUs. Needs gpu_memory_utilization; together they must
	// add up to at most 1.
	//
	//	share_gpus = true
	ShareGPUs bool `toml:"share_gpus"`

	// Further options of vLLM: long flags without dashes. true gives --flag, false --no-flag, a list repeated values, a
	// table JSON.
	//
	//	args = { trust-remote-code = true, max-model-len = 131072 }
	Args Args `toml:"args"`
	// Environment variables, added to the engine's. The rules for the environment apply.
	//
	//	env = { VLLM_LOGGING_LEVEL = "DEBUG" }
	Env map[string]string `toml:"env"`
	// File of environment variables for secrets such as VLLM_API_KEY, read by systemd (systemd.exec(5),
	// EnvironmentFile=). The rules for files with secrets and for the environment apply.
	//
	//	env_file = "/etc/vllmhost/secrets/kimi.env"
	EnvFile string `toml:"env_file"`

	// System user to run as, instead of a dynamic user of its own. For models on NFS, say.
	//
	//	user = "vllm-nfs"
	User string `toml:"user" default:"vllm-NAME, which exists while the instance runs"`
	// Group that may read the models.
	//
	//	group = "vllm"
	Group string `toml:"group"`
	// /dev/shm of the engine: "private" for one of its own, "host" for the host's.
	//
	//	shm = "private"
	Shm Shm `toml:"shm"`
	// Size of a private /dev/shm.
	//
	//	shm_size = "16GiB"
	ShmSize Size `toml:"shm_size" default:"sized for the number of workers"`

	// How long a stop waits for open requests to end: whole seconds, "1s" to "1d".
	//
	//	drain_timeout = "30s"
	DrainTimeout Duration `toml:"drain_timeout"`
	// How long a start may stand still: no new log line, nothing read, no memory taken. "1s" to "1d", and at most
	// start_timeout.
	//
	//	stall_timeout = "15min"
	StallTimeout Duration `toml:"stall_timeout" default:"15min, or start_timeout where that is less"`
	// How long a start may take in all, "1s" to "7d".
	//
	//	start_timeout = "2h"
	StartTimeout Duration `toml:"start_timeout"`

	// What the engine sees of /home, /root and /run/user: nothing with "yes", files it may read with "read-only",
	// everything its user may with "no". For an engine or a model under /home. See systemd.exec(5), ProtectHome=.
	//
	//	protect_home = "read-only"
	ProtectHome ProtectHome `toml:"protect_home"`
	// Directories the engine may write to, besides its cache. See systemd.exec(5), ReadWritePaths=.
	//
	//	read_write_paths = ["/srv/kv-cache"]
	ReadWritePaths []string `toml:"read_write_paths"`
	// Address families the engine may use, besides AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK. See systemd.exec(5),
	// RestrictAddressFamilies=.
	//
	//	restrict_address_families = ["AF_VSOCK"]
	RestrictAddressFamilies []string `toml:"restrict_address_families"`
	// System calls or groups (@group) the engine may use, besides @system-service. See systemd.exec(5),
	// SystemCallFilter=.
	//
	//	system_call_filter = ["@debug"]
	SystemCallFilter []string `toml:"system_call_filter"`
	// Device nodes (/dev/...) or classes of them (char-...) that an engine without GPUs may use. One with GPUs is not kept
	// from any. See systemd.resource-control(5), DeviceAllow=.
	//
	//	device_allow = ["char-infiniband_verbs"]
	DeviceAllow []string `toml:"device_allow"`

	// Checks whose findings are accepted, for people to read why: the check's name as "vllmhost swap --skip-check" knows it,
	// and the reason.
	//
	//	allow = { gpu-memory = "the desktop keeps 2 GiB of GPU 0" }
	Allow map[string]string `toml:"allow"`
	// What a started instance must prove.
	Probe Probe `toml:"probe"`
}

// Probe is the [instance.NAME.probe] table: what a started instance must prove. Rates are output tokens per second.
type Probe struct {
	// Least tokens per second of one request alone. 0 asks for none.
	//
	//	min_single_tps = 75
	MinSingleTPS float64 `toml:"min_single_tps"`
	// Least tokens per second of all requests together, under load. 0 asks for none.
	//
	//	min_load_tps = 2000
	MinLoadTPS float64 `toml:"min_load_tps"`
	// How much slower than its baseline an instance may be.
	//
	//	max_regression = "10%"
	MaxRegression Percent `toml:"max_regression"`
	// Whether a swap fails when foreign requests keep the load from being measured.
	//
	//	require_load = true
	RequireLoad bool `toml:"require_load"`
	// How long the first request after a start may take, "1s" to "1d".
	//
	//	first_request_timeout = "10min"
	FirstRequestTimeout Duration `toml:"first_request_timeout"`
	// Whether to ask for token probabilities: "auto" where that is known to be safe, "yes", "no".
	//
	//	logprobs = "auto"
	Logprobs Logprobs `toml:"logprobs"`
}
