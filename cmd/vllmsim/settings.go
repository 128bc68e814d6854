package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	settingPrefix = "VLLMSIM_"
	settingsFile  = "sim.env"
)

// settings choose how the simulated engine behaves. The package comment says what each one does.
type settings struct {
	Version   string
	Device    string
	TimeScale float64

	ImportTime, LoadTime, ListenDelay      time.Duration
	FailTime, TermTime, StopTime, WatchDog time.Duration

	FailAt, StuckAt      int // percent, -1 for never
	FailText, FailUnless string
	ExitCode             int // -1 for none
	NeverListen          bool
	ModelID              string
	HangAfter            int // tokens, -1 for never
	IgnoreTerm           bool
	LeakShm              bool
	Orphan               bool
	EngineDeath          string
	RejectFlag           string

	Dump     string
	DumpOnly bool

	ShmDir, ShmExtra, DevDir string
	GPUBystanders            bool

	StepBase, StepPerSeq, StepPerPrefill time.Duration
	KVBlocks, BlockSize                  int
	Seed                                 uint64
}

// settingFlags declares every setting with its default and its line of help. A FlagSet already knows how to parse,
// to reject, and to list, which is all that settings need.
func settingFlags(s *settings) *flag.FlagSet {
	fs := flag.NewFlagSet("vllmsim", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&s.Version, "VERSION", "0.32.0", "version to be; before 0.30 it ends and logs like 0.25, later like 0.32")
	fs.StringVar(&s.Device, "DEVICE", "auto", "cpu, cuda, or auto: cuda where a GPU's node can be seen")
	fs.Float64Var(&s.TimeScale, "TIME_SCALE", 1, "factor for every wait below and for the steps; 0 waits for nothing")
	fs.DurationVar(&s.ImportTime, "IMPORT_TIME", 20*time.Millisecond, "exec to bound")
	fs.DurationVar(&s.LoadTime, "LOAD_TIME", 300*time.Millisecond, `bound to "Application startup complete."`)
	fs.DurationVar(&s.ListenDelay, "LISTEN_DELAY", 30*time.Millisecond, "that line to listening")
	fs.DurationVar(&s.FailTime, "FAIL_TIME", 300*time.Millisecond, "root cause of a failed load to exit")
	fs.DurationVar(&s.TermTime, "TERM_TIME", 2*time.Second, "second SIGTERM while loading to exit")
	fs.DurationVar(&s.StopTime, "STOP_TIME", 200*time.Millisecond, "SIGTERM of an idle server to exit")
	fs.DurationVar(&s.WatchDog, "WATCHDOG", 5*time.Second, "death of the engine to exit")
	fs.IntVar(&s.FailAt, "FAIL_AT", -1, "percent of the weights at which it fails with FAIL_TEXT, exit 1")
	fs.StringVar(&s.FailText, "FAIL_TEXT", "oom", `how it fails: a name or number of "vllm --fatal-texts"`)
	fs.StringVar(&s.FailUnless, "FAIL_UNLESS", "", "it fails only as long as this file does not exist")
	fs.IntVar(&s.ExitCode, "EXIT_CODE", -1, "status to exit with, without a word, at FAIL_AT percent or at the end of the load")
	fs.IntVar(&s.StuckAt, "STUCK_AT", -1, "percent of the weights at which it stands still for ever")
	fs.BoolVar(&s.NeverListen, "NEVER_LISTEN", false, "log everything, never listen")
	fs.StringVar(&s.ModelID, "MODEL_ID", "", "model name to answer to, whatever was asked for")
	fs.IntVar(&s.HangAfter, "HANG_AFTER", -1, "tokens after which the engine hangs: healthy, and no more tokens")
	fs.BoolVar(&s.IgnoreTerm, "IGNORE_TERM", false, "no process of it ends by SIGTERM")
	fs.BoolVar(&s.LeakShm, "LEAK_SHM", false, "leave the files in /dev/shm behind")
	fs.BoolVar(&s.Orphan, "ORPHAN", false, "the engine's processes survive the main one, and SIGTERM")
	fs.StringVar(&s.EngineDeath, "ENGINE_DEATH", "exit0", "what follows the engine's death: exit0, exit1 or stay (503 for ever)")
	fs.StringVar(&s.RejectFlag, "REJECT_FLAG", "", "flags this version does not know, separated by spaces or commas")
	fs.StringVar(&s.Dump, "DUMP", "", "file to write argv and environ to, as JSON; ${NAME} is expanded")
	fs.BoolVar(&s.DumpOnly, "DUMP_ONLY", false, "exit 0 after the dump")
	fs.StringVar(&s.ShmDir, "SHM_DIR", "/dev/shm", "in place of /dev/shm")
	fs.StringVar(&s.ShmExtra, "SHM_EXTRA", "", "more files in it, as name:bytes separated by spaces")
	fs.StringVar(&s.DevDir, "DEV_DIR", "/dev", "in place of /dev")
	fs.BoolVar(&s.GPUBystanders, "GPU_BYSTANDERS", true, "processes without GPU memory hold the nodes too, as in the real one")
	fs.DurationVar(&s.StepBase, "STEP_BASE", 10*time.Millisecond, "length of an engine step")
	fs.DurationVar(&s.StepPerSeq, "STEP_PER_SEQ", 220*time.Microsecond, "more for each running request")
	fs.DurationVar(&s.StepPerPrefill, "STEP_PER_PREFILL", 25*time.Millisecond, "more for each request that joins in the step")
	fs.IntVar(&s.KVBlocks, "KV_BLOCKS", 32768, "size of the KV cache in blocks")
	fs.IntVar(&s.BlockSize, "BLOCK_SIZE", 16, "tokens in a block")
	fs.Uint64Var(&s.Seed, "SEED", 0, "other text")
	return fs
}

// loadSettings reads sim.env of the model directory, if there is one, and then the environment, which wins.
func loadSettings(environ []string, model string) (*settings, error) {
	s := new(settings)
	fs := settingFlags(s)
	file := filepath.Join(model, settingsFile)
	text, err := readSmallFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) && model != "" {
		return nil, fmt.Errorf("cannot read %q: %v", file, err)
	}
	for n, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		if err := fs.Set(strings.TrimPrefix(name, settingPrefix), strings.Trim(value, `"'`)); err != nil {
			return nil, fmt.Errorf("cannot use %s:%d: %s: %v", file, n+1, name, err)
		}
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		short, ours := strings.CutPrefix(name, settingPrefix)
		if !ours {
			continue
		}
		if err := fs.Set(short, value); err != nil {
			return nil, fmt.Errorf("cannot use %s from the environment: %v", name, err)
		}
	}
	return s, s.check()
}

func (s *settings) check() error {
	if _, ok := fatalNamed(s.FailText); !ok {
		return fmt.Errorf("cannot use %sFAIL_TEXT=%q: no such text, see vllm --fatal-texts", settingPrefix, s.FailText)
	}
	for name, v := range map[string]struct{ value, allowed string }{
		"DEVICE":       {s.Device, "auto cpu cuda"},
		"ENGINE_DEATH": {s.EngineDeath, "exit0 exit1 stay"},
	} {
		if !slices.Contains(strings.Fields(v.allowed), v.value) {
			return fmt.Errorf("cannot use %s%s=%q: not one of: %s", settingPrefix, name, v.value, v.allowed)
		}
	}
	if s.TimeScale < 0 || s.KVBlocks < 1 || s.BlockSize < 1 {
		return errors.New("cannot use a negative time scale, or a KV cache without blocks")
	}
	return nil
}

// scaled is d in the time this process lives in.
func (s *settings) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * s.TimeScale)
}

// readSmallFile reads a regular file of at most 1 MiB.
func readSmallFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const limit = 1 << 20
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if len(text) > limit {
		return nil, errors.New("larger than 1 MiB")
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), nil
}

func printHelp(w io.Writer) {
	fmt.Fprint(w, `A simulated vLLM.

usage: vllm serve MODEL [options]     vLLM's own long options; unknown ones are accepted
       vllm --version
       vllm --fatal-texts             the failures it can have while loading

Settings, in the environment or as lines in MODEL/`+settingsFile+`:

`)
	settingFlags(new(settings)).VisitAll(func(f *flag.Flag) {
		def := f.DefValue
		if def == "" {
			def = "-"
		}
		fmt.Fprintf(w, "  %-25s %-8s %s\n", settingPrefix+f.Name, def, f.Usage)
	})
}
