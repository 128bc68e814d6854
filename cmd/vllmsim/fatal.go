package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Where an exception is raised decides which wrapper lines follow it.
const (
	fromWorker = "worker"
	fromEngine = "engine"
	fromAPI    = "api"
	fromArgs   = "argparse"
)

// fatal is one way for a load to fail: the line that says why, which real logs bury under two more tracebacks.
type fatal struct {
	name string
	from string
	text string // {model} is replaced
}

// fatals lists the texts that real versions end with; their numbers are their positions, from 1.
func fatals() []fatal {
	return []fatal{
		{"oom", fromWorker, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.62 GiB. GPU 0 has a total capacity of 139.80 GiB of which 1.12 GiB is free."},
		{"gpu-occupied", fromWorker, "ValueError: Free memory on device cuda:0 (78.77/139.8 GiB) on startup is less than desired GPU memory utilization (0.92, 128.62 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."},
		{"no-kv", fromEngine, "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."},
		{"kv-too-small", fromEngine, "ValueError: To serve at least one request with the model's max seq len (131072), 16.0 GiB KV cache is needed, which is larger than the available KV cache memory (9.42 GiB)."},
		{"memory-profiling", fromWorker, "AssertionError: Error in memory profiling. Initial free memory 60.12 GiB, current free memory 71.03 GiB."},
		{"warmup-oom", fromWorker, "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."},
		{"heads", fromAPI, "  Value error, Total number of attention heads (28) must be divisible by tensor parallel size (8)."},
		{"block-fp8", fromWorker, "ValueError: Weight output_partition_size = 192 is not divisible by weight quantization block_n = 128."},
		{"too-many-gpus", fromAPI, "  Value error, World size (8) is larger than the number of available GPUs (4) in this node."},
		{"no-attention", fromWorker, "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=576). Reasons: {FLASHMLA: [compute capability not supported]}."},
		{"attention-forced", fromWorker, "ValueError: Selected backend FLASHMLA is not valid for this configuration. Reason: ['compute capability not supported']"},
		{"capability", fromWorker, "ValueError: The quantization method modelopt_fp4 is not supported for the current GPU. Minimum capability: 100. Current capability: 90."},
		{"quantization", fromAPI, "  Value error, Quantization method specified in the model config (fp8) does not match the quantization method specified in the `quantization` argument (awq)."},
		{"architecture", fromAPI, "  Value error, Model architectures ['Kimi25ForCausalLM'] are not supported for now. Supported architectures: dict_keys([...])"},
		{"transformers", fromAPI, "  Value error, The checkpoint you are trying to load has model type `kimi_k25` but Transformers does not recognize this architecture."},
		{"no-config", fromAPI, "ValueError: Invalid repository ID or local directory specified: '{model}'."},
		{"config", fromAPI, "OSError: Failed to load the model config. If the model is a custom model not yet available in the HuggingFace transformers library, consider setting `trust_remote_code=True`."},
		{"no-weights", fromWorker, "RuntimeError: Cannot find any model weights with `{model}`"},
		{"missing-shard", fromWorker, "FileNotFoundError: Weight files referenced in index but missing: {'{model}/model-00002-of-00004.safetensors'}"},
		{"truncated-shard", fromWorker, "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered"},
		{"max-model-len", fromAPI, "  Value error, User-specified max_model_len (999999) is greater than the derived max_model_len (max_position_embeddings=512). VLLM_ALLOW_LONG_MAX_MODEL_LEN must be set to override this."},
		{"address-in-use", fromEngine, "torch.distributed.DistNetworkError: The server socket has failed to bind. EADDRINUSE: address already in use"},
		{"nccl", fromWorker, "torch.distributed.DistBackendError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"},
		{"no-gpu", fromWorker, "RuntimeError: No CUDA GPUs are available"},
		{"shm-full", fromWorker, "RuntimeError: Insufficient space in /dev/shm: 64 MiB available, 240 MiB needed"},
		{"ptx", fromWorker, "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."},
		{"timeout", fromAPI, "TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight loading for large models."},
		{"flag", fromArgs, "vllm: error: unrecognized arguments: --disable-log-requests"},
		{"kv-dtype", fromAPI, "  Value error, fp8_e5m2 kv-cache is not supported with fp8 checkpoints."},
		{"lfs-pointer", fromWorker, "safetensors_rust.SafetensorError: Error while deserializing header: header too large"},
		{"tokenizer", fromAPI, "ValueError: Couldn't instantiate the backend tokenizer from one of: (1) a `tokenizers` library serialization file, (2) a slow tokenizer instance to convert or (3) an equivalent slow tokenizer class to instantiate and convert."},
		{"netlink", fromWorker, "RuntimeError: [enforce fail at ../gloo/transport/tcp/device.cc:186] rv != -1. -1 vs -1. Address family not supported by protocol"},
		{"noexec", fromWorker, "ImportError: /tmp/cuda_utils.so: failed to map segment from shared object"},
		{"assertion", fromWorker, "AssertionError"},
	}
}

// fatalNamed finds a text by its name or its number.
func fatalNamed(name string) (fatal, bool) {
	all := fatals()
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= len(all) {
		return all[n-1], true
	}
	for _, f := range all {
		if f.name == name {
			return f, true
		}
	}
	return fatal{}, false
}

func printFatalTexts(w io.Writer) {
	for i, f := range fatals() {
		fmt.Fprintf(w, "%2d  %-17s %-7s %s\n", i+1, f.name, f.from, strings.TrimSpace(f.text))
	}
}

// traceback is a Python traceback with its source lines left out.
func traceback(where []string, last string) string {
	var b strings.Builder
	b.WriteString("Traceback (most recent call last):\n")
	for _, w := range where {
		file, function, _ := strings.Cut(w, " ")
		fmt.Fprintf(&b, "  File \"/opt/vllm/lib/python3.12/site-packages/vllm/%s\", line 1, in %s\n    ...\n", file, function)
	}
	b.WriteString(last)
	return b.String()
}

// mainTraceback is how the main process shows an exception that nobody caught.
func mainTraceback(last string) string {
	return traceback([]string{"entrypoints/cli/main.py main", "entrypoints/cli/serve.py cmd", "entrypoints/launchers/api_server/entry.py run_server"}, last)
}

// printFatal logs f as the processes that see it do: the one that raised it, then each of its parents.
func (s *server) printFatal(f fatal) {
	text := strings.ReplaceAll(f.text, "{model}", s.opt.model)
	api := s.speaker("api")
	if f.from == fromAPI {
		if strings.HasPrefix(text, "  Value error") {
			text = "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n" + text +
				" [type=value_error, input_value=ArgsKwargs((), {'model': '{}'}), input_type=ArgsKwargs]"
		}
		s.log.plain(api, mainTraceback(text))
		return
	}
	engine := s.speaker("engine")
	worker := s.speaker("worker")
	if f.from == fromWorker && worker.pid != engine.pid {
		s.log.line(worker, errorLevel, "multiproc_executor.py:953", "WorkerProc failed to start.\n"+
			traceback([]string{"v1/executor/multiproc_executor.py worker_main", "v1/worker/gpu_worker.py load_model"}, text))
		text = "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause."
	}
	frames := []string{"v1/engine/core.py run_engine_core", "v1/engine/core.py __init__", "v1/executor/abstract.py __init__"}
	s.log.line(engine, errorLevel, "core.py:1510", "EngineCore failed to start.\n"+traceback(frames, text))
	s.log.plain(engine, "Process EngineCore:\n"+traceback(frames, text))
	time.Sleep(s.set.scaled(s.set.FailTime))
	s.log.plain(api, mainTraceback("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"))
}
