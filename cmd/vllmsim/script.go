package main

import (
	"fmt"
	"os"
	"strings"
)

// scriptLine is one entry of the log of a start.
type scriptLine struct {
	share  float64 // of the load time, passing before the line
	who    string  // api, engine, worker (the first), workers (each); early/ before a worker: before it knows its rank
	level  string
	where  string
	text   string
	action action
}

type action int

const (
	printLine action = iota
	printPlain
	spawnEngine
	loadShards
)

// shardShare is the part of the load time that goes into the weights.
const shardShare = 0.5

// banner is what the server says right before it binds.
func (s *server) banner() {
	api := s.speaker("api")
	if os.Getenv("VLLM_DISABLE_LOG_LOGO") == "" {
		s.log.line(api, infoLevel, "api_utils.py:347", "\n   vllmsim    simulated engine, version "+s.rel.version+"\n   model      "+s.opt.model+"\n")
	}
	s.log.line(api, infoLevel, "api_utils.py:286", "non-default args: "+s.opt.nonDefault)
}

// script is the log of a start from binding on, in the order of the real ones.
func (s *server) script() []scriptLine {
	lines := []scriptLine{
		{0.03, "api", infoLevel, "model.py:733", "Resolved architecture: " + s.model.architecture, printLine},
		{0, "api", infoLevel, "model.py:2152", fmt.Sprintf("Using max model len %d", s.model.maxLen), printLine},
		{0.02, "", "", "", "", spawnEngine},
		{0.05, "engine", infoLevel, "core.py:133", s.engineConfig(), printLine},
	}
	if s.cuda {
		lines = append(lines, s.cudaScript()...)
	} else {
		lines = append(lines, s.cpuScript()...)
	}
	lines = append(lines,
		scriptLine{0.04, "api", infoLevel, "entry.py:136", "Supported tasks: ['generate']", printLine},
		scriptLine{0, "api", infoLevel, "entry.py:140", "Starting vLLM server on " + s.sock.url, printLine},
		scriptLine{0, "api", infoLevel, "launcher.py:186", "Available routes are:", printLine})
	for _, route := range routes() {
		lines = append(lines, scriptLine{0, "api", infoLevel, "launcher.py:195", "Route: " + route.path + ", Methods: " + route.method, printLine})
	}
	return append(lines,
		scriptLine{0.01, "api", "", "", fmt.Sprintf("INFO:     Started server process [%d]", os.Getpid()), printPlain},
		scriptLine{0, "api", "", "", "INFO:     Waiting for application startup.", printPlain},
		scriptLine{0, "api", "", "", "INFO:     Application startup complete.", printPlain})
}

func (s *server) engineConfig() string {
	device := "cpu"
	if s.cuda {
		device = "cuda"
	}
	return fmt.Sprintf("Initializing a V1 LLM engine (v%s) with config: model=%s, tokenizer=%[2]s, dtype=torch.bfloat16, max_seq_len=%d, "+
		"load_format=auto, tensor_parallel_size=%d, pipeline_parallel_size=%d, data_parallel_size=1, device_config=%s, seed=0, served_model_name=%s",
		s.rel.version, pyString(s.opt.model), s.model.maxLen, s.opt.tp, s.opt.pp, device, s.opt.served[0])
}

func (s *server) kvTokens() int { return s.set.KVBlocks * s.set.BlockSize }

func (s *server) cpuScript() []scriptLine {
	return []scriptLine{
		{0.15, "early/workers", infoLevel, "parallel_state.py:1906", "world_size={world} rank={rank} local_rank={rank} distributed_init_method=file://" + s.procs.rendezvous + " backend=gloo", printLine},
		{0, "early/worker", infoLevel, "parallel_state.py:2350", "rank 0 in world size {world} is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, ETP rank 0, EP rank N/A, EPLB rank N/A", printLine},
		{0.01, "workers", infoLevel, "cpu_model_runner.py:68", "Starting to load model " + s.opt.model + "...", printLine},
		{0, "worker", infoLevel, "base_loader.py:82", "Initializing model took 0.409204 seconds", printLine},
		{0, "worker", infoLevel, "weight_utils.py:1108", "Filesystem type for checkpoints: EXT4. Checkpoint size: 0.00 GiB. Available RAM: 21.49 GiB.", printLine},
		{0, "", "", "", "", loadShards},
		{0, "worker", infoLevel, "default_loader.py:501", fmt.Sprintf("Loading weights took %.2f seconds", shardShare*s.set.scaled(s.set.LoadTime).Seconds()), printLine},
		{0.02, "engine", infoLevel, "utils.py:347", "Using LBHNC KV cache layout.", printLine},
		{0, "workers", infoLevel, "cpu_worker.py:260", "Explicitly set (1.0/16.34) GiB for KV cache on node 0.", printLine},
		{0.02, "engine", infoLevel, "kv_cache_utils.py:2327", fmt.Sprintf("CPU KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx",
			thousands(s.kvTokens()), thousands(s.model.maxLen), float64(s.kvTokens())/float64(s.model.maxLen)), printLine},
		{0.15, "engine", infoLevel, "core.py:402", "init engine (profile, create kv cache, warmup model) took 1.73 s", printLine},
	}
}

func (s *server) cudaScript() []scriptLine {
	rendezvous := "tcp://127.0.0.1:33263"
	lines := []scriptLine{
		{0.08, "early/workers", infoLevel, "parallel_state.py:1607", "world_size={world} rank={rank} local_rank={rank} distributed_init_method=" + rendezvous + " backend=nccl", printLine},
	}
	if s.opt.tp*s.opt.pp > 1 {
		lines = append(lines, scriptLine{0.02, "early/worker", infoLevel, "pynccl.py:113", "vLLM is using nccl==2.28.9", printLine})
	}
	lines = append(lines, []scriptLine{
		{0, "early/worker", infoLevel, "parallel_state.py:1942", "rank 0 in world size {world} is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, EP rank N/A, EPLB rank N/A", printLine},
		{0, "early/worker", infoLevel, "gpu_worker.py:360", "Using V2 Model Runner", printLine},
		{0.01, "workers", infoLevel, "model_runner.py:281", "Loading model from scratch...", printLine},
		{0, "worker", infoLevel, "cuda.py:476", "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'TRITON_ATTN', 'FLEX_ATTENTION'].", printLine},
		{0, "worker", infoLevel, "weight_utils.py:849", "Filesystem type for checkpoints: EXT4. Checkpoint size: 0.47 GiB. Available RAM: 123.36 GiB.", printLine},
		{0, "", "", "", "", loadShards},
		{0, "worker", infoLevel, "default_loader.py:430", fmt.Sprintf("Loading weights took %.2f seconds", shardShare*s.set.scaled(s.set.LoadTime).Seconds()), printLine},
		{0, "workers", infoLevel, "model_runner.py:302", "Model loading took 0.49 GiB and 1.841526 seconds", printLine},
		{0.04, "worker", infoLevel, "backends.py:1148", "Dynamo bytecode transform time: 1.71 s", printLine},
		{0.02, "worker", infoLevel, "monitor.py:53", "torch.compile took 2.61 s in total", printLine},
		{0, "worker", infoLevel, "monitor.py:81", "Initial profiling/warmup run took 0.09 s", printLine},
		{0.02, "workers", infoLevel, "gpu_worker.py:538", "Available KV cache memory: 127.67 GiB", printLine},
		{0, "engine", infoLevel, "kv_cache_utils.py:2146", "GPU KV cache size: " + thousands(s.kvTokens()) + " tokens", printLine},
		{0, "engine", infoLevel, "kv_cache_utils.py:2147", fmt.Sprintf("Maximum concurrency for %s tokens per request: %.2fx",
			thousands(s.model.maxLen), float64(s.kvTokens())/float64(s.model.maxLen)), printLine},
		{0.04, "worker", infoLevel, "model_runner.py:722", "Graph capturing finished in 3 secs, took 0.33 GiB", printLine},
		{0.10, "workers", infoLevel, "jit_monitor.py:73", "Kernel JIT monitor activated; monitored JIT compilations during inference will use mode=warn.", printLine},
		{0.02, "engine", infoLevel, "core.py:337", "init engine (profile, create kv cache, warmup model) took 23.88 s (compilation: 2.61 s)", printLine},
	}...)
	return lines
}

// say prints a line of the script, once for each process that says it.
func (s *server) say(l scriptLine) {
	if l.action == printPlain {
		s.log.plain(s.speaker(l.who), l.text)
		return
	}
	who, early := strings.CutPrefix(l.who, "early/")
	speakers := []speaker{s.speaker(who)}
	if who == "workers" {
		speakers = s.procs.workerSpeakers()
	}
	for rank, sp := range speakers {
		if early && strings.HasPrefix(sp.name, "Worker_") {
			sp.name = "Worker"
		}
		text := strings.NewReplacer("{world}", fmt.Sprint(s.opt.tp*s.opt.pp), "{rank}", fmt.Sprint(rank)).Replace(l.text)
		s.log.line(sp, l.level, l.where, text)
	}
}

// speaker says which process a line comes from. Where there are no workers the engine does their work.
func (s *server) speaker(who string) speaker {
	switch {
	case who == "api" || s.procs == nil:
		return speaker{"APIServer", os.Getpid()}
	case who == "engine":
		return s.procs.engineSpeaker()
	default:
		return s.procs.workerSpeakers()[0]
	}
}

// thousands groups the digits of n >= 0: 4,194,304.
func thousands(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
