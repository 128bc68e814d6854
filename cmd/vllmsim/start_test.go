package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The order of the lines in the logs of real starts, and who says them.
func TestLogOfAStart(t *testing.T) {
	tests := []struct {
		name string
		gpus int
		env  []string
		args []string
		want []string
	}{
		{
			name: "cpu", want: []string{
				"(APIServer ", "non-default args: {'model_tag': ",
				"Resolved architecture: MiniMaxM2ForCausalLM",
				"Using max model len 4096",
				"(EngineCore ", "Initializing a V1 LLM engine (v0.32.0) with config: model=",
				"(Worker ", "world_size=1 rank=0 local_rank=0 distributed_init_method=file:///",
				"Starting to load model /",
				"Loading safetensors checkpoint shards:   0% Completed | 0/3 [00:00<?, ?it/s]\n",
				"Loading safetensors checkpoint shards:  33% Completed | 1/3 [",
				"Loading safetensors checkpoint shards: 100% Completed | 3/3 [",
				"Loading weights took",
				"(EngineCore ", "CPU KV cache size: 524,288 tokens, Maximum concurrency for 4,096 tokens per request: 128.00x",
				"init engine (profile, create kv cache, warmup model) took",
				"(APIServer ", "Supported tasks: ['generate']",
				"Starting vLLM server on http://127.0.0.1:",
				"Available routes are:", "Route: /health, Methods: GET",
				"\nINFO:     Started server process [", "\nINFO:     Waiting for application startup.", "\nINFO:     Application startup complete.\n",
			},
		},
		{
			name: "cpu, two workers", args: []string{"--tensor-parallel-size", "2"}, want: []string{
				"(Worker ", "world_size=2 rank=0", "world_size=2 rank=1",
				"(Worker_TP0 ", "Starting to load model", "(Worker_TP1 ", "Starting to load model",
				"(Worker_TP0 ", "Loading weights took", "Application startup complete.",
			},
		},
		{
			name: "cuda", gpus: 1, env: []string{"VLLMSIM_VERSION=0.25.1"}, want: []string{
				"(EngineCore ", "Initializing a V1 LLM engine (v0.25.1)",
				"(EngineCore ", "world_size=1 rank=0 local_rank=0 distributed_init_method=tcp://",
				"(EngineCore ", "Loading model from scratch...", "attention backend out of potential backends",
				"Loading safetensors checkpoint shards: 100% Completed | 3/3 [",
				"Loading weights took", "Model loading took", "torch.compile took", "Initial profiling/warmup run took",
				"Available KV cache memory:", "GPU KV cache size: 524,288 tokens\n", "Maximum concurrency for",
				"Graph capturing finished in", "Kernel JIT monitor activated", "init engine (profile",
				"(APIServer ", "INFO:     Application startup complete.",
			},
		},
		{
			name: "cuda, two workers", gpus: 2, args: []string{"-tp", "2"}, want: []string{
				"(Worker ", "world_size=2 rank=0", "vLLM is using nccl==", "(Worker_TP0 ", "Loading model from scratch...",
				"Application startup complete.",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := prepare(t, tt.env, append([]string{"serve"}, tt.args...)...)
			fillModel(t, s, 3)
			for i := range tt.gpus {
				os.WriteFile(filepath.Join(s.path("dev"), fmt.Sprintf("nvidia%d", i)), nil, 0o644)
			}
			s.launch().saw("Application startup complete.")
			rest := s.text()
			for _, want := range tt.want {
				i := strings.Index(rest, want)
				if i < 0 {
					t.Fatalf("no %q in what follows of the log:\n%s", want, rest)
				}
				rest = rest[i+len(want):]
			}
		})
	}
}

// fillModel makes a model directory with a config and an index of shards.
func fillModel(t *testing.T, s *sim, shards int) {
	t.Helper()
	weights := map[string]string{}
	for i := range shards {
		file := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		weights[fmt.Sprintf("layer.%d", i)] = file
		s.write("model/"+file, emptyShard)
	}
	index, _ := json.Marshal(map[string]any{"weight_map": weights})
	s.write("model/model.safetensors.index.json", string(index))
	s.write("model/config.json", `{"architectures":["MiniMaxM2ForCausalLM"],"max_position_embeddings":4096}`)
}

func (s *sim) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// While it loads, the port is taken for those who bind plainly, free for those who reuse, and closed to clients.
func TestBoundBeforeListening(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"VLLMSIM_STUCK_AT=50"})
	s.saw(" 50% Completed | 2/4")
	if !refused(s.port) {
		t.Error("a connection is not refused")
	}
	if err := tryBind(t, s.port, false); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("plain bind: %v, want address in use", err)
	}
	if err := tryBind(t, s.port, true); err != nil {
		t.Errorf("bind with SO_REUSEADDR: %v, want it to work", err)
	}
}

func tryBind(t *testing.T, port string, reuse bool) error {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			if !reuse {
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)
			}
		})
	}}
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:"+port)
	if err == nil {
		ln.Close()
	}
	return err
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	s := prepare(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:"+s.port)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s.launch()
	if got := s.status(); got != 1 {
		t.Errorf("status %d, want 1", got)
	}
	s.saw("\nOSError: [Errno 98] Address already in use\n")
}

// Two that load at once both bind; whoever listens first wins, and the other ends after its whole load.
func TestPortTakenDuringTheLoad(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"VLLMSIM_LOAD_TIME=500ms"})
	s.saw("Resolved architecture")
	ln, err := net.Listen("tcp", "127.0.0.1:"+s.port)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if got := s.status(); got != 1 {
		t.Errorf("status %d, want 1", got)
	}
	s.saw("Application startup complete.")
	s.saw("[Errno 98] Address already in use")
}

func TestUnixSocketStaysBehind(t *testing.T) {
	t.Parallel()
	s := prepare(t, []string{"VLLMSIM_LOAD_TIME=400ms"})
	s.cmd.Args = append(s.cmd.Args, "--uds", s.path("t/api"))
	s.launch().saw("Resolved architecture")
	if _, err := net.Dial("unix", s.path("t/api")); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("dial while loading: %v, want refused", err)
	}
	s.saw("Application startup complete.")
	s.saw("Starting vLLM server on unix:" + s.path("t/api"))
	s.signal(syscall.SIGTERM)
	if got := s.status(); got != 0 {
		t.Errorf("status %d, want 0", got)
	}
	again := prepare(t, nil)
	again.cmd.Args = append(again.cmd.Args, "--uds", s.path("t/api"))
	if got := again.launch().status(); got != 1 {
		t.Errorf("second start: status %d, want 1", got)
	}
	again.saw("OSError: [Errno 98] Address already in use")
}

// How a start ends that does not become a server.
func TestFailedStarts(t *testing.T) {
	tests := []struct {
		name   string
		env    []string
		args   []string
		status int
		want   []string // in this order
	}{
		{"out of memory at half", []string{"VLLMSIM_FAIL_AT=50"}, nil, 1, []string{
			"50% Completed | 2/4", "(Worker ", "WorkerProc failed to start.", "torch.OutOfMemoryError: CUDA out of memory",
			"(EngineCore ", "EngineCore failed to start.", "WorkerProc initialization failed due to an exception in a background process",
			"Process EngineCore:\nTraceback", "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"}},
		{"by number, in the engine", []string{"VLLMSIM_FAIL_AT=0", "VLLMSIM_FAIL_TEXT=3"}, nil, 1, []string{
			"  0% Completed", "EngineCore failed to start.", "ValueError: No available memory for the cache blocks", "Engine core initialization failed."}},
		{"config", []string{"VLLMSIM_FAIL_AT=0", "VLLMSIM_FAIL_TEXT=heads"}, nil, 1, []string{
			"Traceback (most recent call last):", "ValidationError: 1 validation error for ModelConfig\n", "must be divisible by tensor parallel size"}},
		{"removed flag by text", []string{"VLLMSIM_FAIL_AT=0", "VLLMSIM_FAIL_TEXT=flag"}, nil, 2, []string{"vllm: error: unrecognized arguments: --disable-log-requests\n"}},
		{"exit without a word", []string{"VLLMSIM_EXIT_CODE=3"}, nil, 3, []string{"Application startup complete."}},
		{"exit 0 before ready", []string{"VLLMSIM_EXIT_CODE=0", "VLLMSIM_FAIL_AT=25"}, nil, 0, []string{"25% Completed"}},
		{"unknown flag", []string{"VLLMSIM_REJECT_FLAG=no-such-flag"}, []string{"--no-such-flag", "5"}, 2, []string{"usage: vllm", "\nvllm: error: unrecognized arguments: --no-such-flag 5\n"}},
		{"bad value", nil, []string{"--max-num-seqs", "two"}, 2, []string{"\nvllm serve: error: argument --max-num-seqs: invalid int value: 'two'\n"}},
		{"no device", []string{"VLLMSIM_DEVICE=cuda"}, nil, 1, []string{"RuntimeError: Failed to infer device type"}},
		{"unknown setting", []string{"VLLMSIM_LAOD_TIME=1s"}, nil, 70, []string{"cannot use VLLMSIM_LAOD_TIME from the environment"}},
		{"unknown text", []string{"VLLMSIM_FAIL_TEXT=out-of-luck"}, nil, 70, []string{"no such text"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, tt.env, append([]string{"serve"}, tt.args...)...)
			if got := s.status(); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
			s.saw(tt.want[len(tt.want)-1])
			rest := s.text()
			for _, want := range tt.want {
				i := strings.Index(rest, want)
				if i < 0 {
					t.Fatalf("no %q in what follows of the log:\n%s", want, rest)
				}
				rest = rest[i+len(want):]
			}
			if left := s.files("shm", ""); len(left) > 0 {
				t.Errorf("left in shm: %v", left)
			}
		})
	}
}

func TestModelThatCannotLoad(t *testing.T) {
	t.Run("missing shard", func(t *testing.T) {
		t.Parallel()
		s := prepare(t, nil)
		fillModel(t, s, 3)
		os.Remove(s.path("model/model-00002-of-00003.safetensors"))
		if got := s.launch().status(); got != 1 {
			t.Errorf("status %d, want 1", got)
		}
		s.saw("FileNotFoundError: Weight files referenced in index but missing: {'" + s.path("model/model-00002-of-00003.safetensors") + "'}")
	})
	for name, tt := range map[string]struct{ version, file, text, want string }{
		"missing shard, before 0.26": {"0.25.1", "model-00002-of-00003.safetensors", "", "ValueError: Following weights were not initialized from checkpoint:"},
		"no file at all":             {"0.32.0", "", "", "RuntimeError: Cannot find any model weights with"},
		"empty":                      {"0.32.0", "model.safetensors", " ", "header too small"},
		"a pointer of git-lfs":       {"0.32.0", "model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", "header too large"},
		"cut in its header":          {"0.32.0", "model.safetensors", "\x40\x00\x00\x00\x00\x00\x00\x00{", "invalid header length"},
		"cut in its data": {"0.32.0", "model.safetensors", "\x35\x00\x00\x00\x00\x00\x00\x00" +
			`{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}` + "1234", "incomplete metadata, file not fully covered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepare(t, []string{"VLLMSIM_VERSION=" + tt.version})
			switch {
			case tt.text != "":
				s.write("model/"+tt.file, tt.text)
			case tt.file != "":
				fillModel(t, s, 3)
				os.Remove(s.path("model/" + tt.file))
			default:
				os.Remove(s.path("model/model.safetensors"))
			}
			if got := s.launch().status(); got != 1 {
				t.Errorf("status %d, want 1", got)
			}
			s.saw(tt.want)
		})
	}
	t.Run("missing directory", func(t *testing.T) {
		t.Parallel()
		s := prepare(t, nil)
		os.RemoveAll(s.path("model"))
		if got := s.launch().status(); got != 1 {
			t.Errorf("status %d, want 1", got)
		}
		s.saw("HFValidationError: Repo id must be in the form")
	})
	t.Run("longer than the model", func(t *testing.T) {
		t.Parallel()
		s := prepare(t, nil, "serve", "--max-model-len", "8k")
		fillModel(t, s, 3)
		if got := s.launch().status(); got != 1 {
			t.Errorf("status %d, want 1", got)
		}
		s.saw("User-specified max_model_len (8000) is greater than the derived max_model_len")
	})
}

// A fault that is there until a file is.
func TestFailUnless(t *testing.T) {
	t.Parallel()
	s := prepare(t, []string{"VLLMSIM_FAIL_AT=50"})
	s.write("model/sim.env", "# repaired by this file\nVLLMSIM_FAIL_UNLESS="+s.path("model/repaired")+"\n")
	s.write("model/repaired", "")
	s.launch().untilReady()
}
