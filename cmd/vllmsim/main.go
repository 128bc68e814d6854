// Vllmsim is a simulated vLLM: its command line, its log, its processes, its files, its HTTP interface and its ways to
// end, without a model and without a GPU. Tests, the demo and the benchmarks run it in place of the real one, installed
// as /opt/vllm/bin/vllm. It is not packaged.
//
// What it copies was measured on vLLM 0.32.0 (CPU) and 0.25.1 (CUDA): it binds its port first and listens only when the
// model is loaded, swallows the first SIGTERM while loading, exits 0 when its engine dies. What it does not copy is
// arithmetic: text comes from a small store of English, and time from one loop of steps (engine.go).
//
// It imports nothing else of this module, so that it can never agree with a bug in what it tests.
//
// # Settings
//
// Behaviour is chosen by environment variables, and by lines NAME=value in a file sim.env inside the model directory;
// the environment wins. "vllm --help" prints the same table with the defaults. An unknown name is an error.
//
//	VLLMSIM_VERSION          version to be; before 0.30 it ends and logs like 0.25, later like 0.32
//	VLLMSIM_DEVICE           cpu, cuda, or auto: cuda where a GPU's node can be seen
//	VLLMSIM_TIME_SCALE       factor for every wait below and for the steps; 0 waits for nothing
//	VLLMSIM_IMPORT_TIME      exec to bound
//	VLLMSIM_LOAD_TIME        bound to "Application startup complete."
//	VLLMSIM_LISTEN_DELAY     that line to listening
//	VLLMSIM_FAIL_TIME        root cause of a failed load to exit
//	VLLMSIM_TERM_TIME        second SIGTERM while loading to exit
//	VLLMSIM_STOP_TIME        SIGTERM of an idle server to exit
//	VLLMSIM_WATCHDOG         death of the engine to exit
//	VLLMSIM_FAIL_AT          percent of the weights at which it fails with FAIL_TEXT, exit 1
//	VLLMSIM_FAIL_TEXT        how it fails: a name or number of "vllm --fatal-texts"
//	VLLMSIM_FAIL_UNLESS      it fails only as long as this file does not exist
//	VLLMSIM_EXIT_CODE        status to exit with, without a word, at FAIL_AT percent or at the end of the load
//	VLLMSIM_STUCK_AT         percent of the weights at which it stands still for ever
//	VLLMSIM_NEVER_LISTEN     log everything, never listen
//	VLLMSIM_MODEL_ID         model name to answer to, whatever was asked for
//	VLLMSIM_HANG_AFTER       tokens after which the engine hangs: healthy, and no more tokens
//	VLLMSIM_IGNORE_TERM      no process of it ends by SIGTERM
//	VLLMSIM_LEAK_SHM         leave the files in /dev/shm behind
//	VLLMSIM_ORPHAN           the engine's processes survive the main one, and SIGTERM
//	VLLMSIM_ENGINE_DEATH     what follows the engine's death: exit0, exit1 or stay (503 for ever)
//	VLLMSIM_REJECT_FLAG      flags this version does not know, separated by spaces or commas
//	VLLMSIM_DUMP             file to write argv and environ to, as JSON; ${NAME} is expanded
//	VLLMSIM_DUMP_ONLY        exit 0 after the dump
//	VLLMSIM_SHM_DIR          in place of /dev/shm
//	VLLMSIM_SHM_EXTRA        more files in it, as name:bytes separated by spaces
//	VLLMSIM_DEV_DIR          in place of /dev
//	VLLMSIM_GPU_BYSTANDERS   processes without GPU memory hold the nodes too, as in the real one
//	VLLMSIM_STEP_BASE        length of an engine step
//	VLLMSIM_STEP_PER_SEQ     more for each running request
//	VLLMSIM_STEP_PER_PREFILL more for each request that joins in the step
//	VLLMSIM_KV_BLOCKS        size of the KV cache in blocks
//	VLLMSIM_BLOCK_SIZE       tokens in a block
//	VLLMSIM_SEED             other text
//
// # For tests alone
//
// POST /__die kills the engine's process. GET /__truth answers what really happened: tokens, steps, tokens in each
// second, how requests ended, and the pids of the engine and its workers.
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	if spec := os.Getenv(childVariable); spec != "" {
		runChild(spec)
		return
	}
	end := run(os.Args, os.Environ())
	end.exit()
}

// run is the whole program: what argv asks for, until it ends.
func run(argv, environ []string) ending {
	set, err := loadSettings(environ, modelArgument(argv))
	if err != nil {
		fmt.Fprintf(os.Stderr, "vllmsim: %v\n", err)
		return ending{code: 70}
	}
	if set.Dump != "" {
		if err := dump(os.ExpandEnv(set.Dump)); err != nil {
			fmt.Fprintf(os.Stderr, "vllmsim: %v\n", err)
			return ending{code: 70}
		}
	}
	if set.DumpOnly {
		return ending{}
	}
	switch verb := append(argv, "", "")[1]; verb {
	case "serve":
		return serve(argv[2:], set)
	case "-v", "--version":
		fmt.Println(set.Version)
	case "", "-h", "--help":
		printHelp(os.Stdout)
	case "--fatal-texts":
		printFatalTexts(os.Stdout)
	default:
		// Even a wrong command line is only read after the imports.
		time.Sleep(set.scaled(set.ImportTime))
		return usageError{prog: "vllm", text: fmt.Sprintf("argument subparser: invalid choice: '%s' (choose from 'serve')", verb)}.print()
	}
	return ending{}
}
