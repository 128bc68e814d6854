package gate

import (
	"strings"
	"testing"
)

func TestReason(t *testing.T) {
	for _, tt := range []struct{ name, log, want string }{
		{"a worker's error, wrapped twice", `
(Worker pid=9) ERROR 11-30 21:58:22 [multiproc_executor.py:953] WorkerProc failed to start.
(Worker pid=9) ERROR 11-30 21:58:22 [multiproc_executor.py:953] Traceback (most recent call last):
(Worker pid=9) ERROR 11-30 21:58:22 [multiproc_executor.py:953] FileNotFoundError: Weight files referenced in index but missing: {'m-2.safetensors'}
(EngineCore pid=4) ERROR 11-30 21:58:25 [core.py:1510] EngineCore failed to start.
(EngineCore pid=4) ERROR 11-30 21:58:25 [core.py:1510] Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.
Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}`,
			"FileNotFoundError: Weight files referenced in index but missing: {'m-2.safetensors'}"},
		{"the engine's own, with a module's name", `
(EngineCore pid=4) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.15 GiB.
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.`,
			"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.15 GiB."},
		{"an option it does not know", "usage: vllm [-h]\nvllm: error: unrecognized arguments: --no-such-flag",
			"vllm: error: unrecognized arguments: --no-such-flag"},
		{"a value it does not take", "vllm serve: error: argument --dtype: invalid choice: 'float7'",
			"vllm serve: error: argument --dtype: invalid choice: 'float7'"},
		{"pydantic's, told in the next line", `
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, User-specified max_model_len (999999) is greater than the derived max_model_len`,
			"pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig: Value error, User-specified max_model_len (999999) is greater than the derived max_model_len"},
		{"a warning that mentions an error is none", "WARNING 11-30 21:56:53 [system_utils.py:255] This can cause errors like `OSError: [Errno 24] Too many open files`.", ""},
		{"killed, without a word", "INFO 11-30 21:56:53 [core.py:1] Starting to load model /srv/models/m...", ""},
		{"nothing", "", ""},
	} {
		if got := Reason(strings.Split(tt.log, "\n")); got != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
	}
}
