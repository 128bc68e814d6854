package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ending is how the process ends: an exit status, or death by a signal.
type ending struct {
	code   int
	signal syscall.Signal
}

func (e ending) exit() {
	if e.signal != 0 {
		signal.Reset(e.signal)
		unix.Kill(os.Getpid(), e.signal)
		time.Sleep(time.Second) // the signal arrives on some thread
	}
	os.Exit(e.code)
}

// server is one run of "vllm serve".
type server struct {
	opt   *options
	set   *settings
	rel   release
	model modelDir
	cuda  bool
	gpus  []int // minor numbers of the nodes this process may use
	log   *logger

	sock    *boundSocket
	signals chan os.Signal
	procs   *processTree
	engine  *engine
	api     *api
}

// serve is "vllm serve": import, bind, load, listen, and then whatever ends it.
func serve(words []string, set *settings) ending {
	rel := releaseOf(set.Version)
	s := &server{set: set, rel: rel, log: newLogger(rel)}

	// The imports take long and go by the default actions: a SIGTERM kills, a wrong flag is found only afterwards.
	if set.IgnoreTerm {
		signal.Ignore(syscall.SIGTERM)
	}
	time.Sleep(set.scaled(set.ImportTime))
	opt, err := parseOptions(words, set.RejectFlag)
	if err != nil {
		return err.(usageError).print()
	}
	s.opt, s.model = opt, readModel(opt.model)
	s.gpus = visibleGPUs(set.DevDir)
	s.cuda = set.Device == "cuda" || set.Device == "auto" && len(s.gpus) > 0
	if s.cuda && len(s.gpus) == 0 {
		s.log.plain(s.speaker("api"), mainTraceback("RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging to help debug the issue."))
		return ending{code: 1}
	}

	s.banner()
	if s.sock, err = bind(opt); err != nil {
		s.log.plain(s.speaker("api"), mainTraceback(err.Error()))
		return ending{code: 1}
	}
	s.signals = make(chan os.Signal, 8)
	signal.Notify(s.signals, syscall.SIGINT)
	if !set.IgnoreTerm {
		signal.Notify(s.signals, syscall.SIGTERM)
	}

	s.procs = newProcessTree(s)
	if end := s.load(); end != nil {
		return s.leave(*end)
	}
	return s.leave(s.run())
}

// leave ends all processes and removes what they made, the way an orderly exit of any kind does.
func (s *server) leave(end ending) ending {
	s.procs.end()
	return end
}

// load goes through the script up to "Application startup complete.". It returns how the process ends if that comes first.
func (s *server) load() *ending {
	if problem, ok := s.configProblem(); ok {
		return s.fail(problem)
	}
	interrupted := 0
	for _, l := range s.script() {
		if end := s.pass(l.share, &interrupted); end != nil {
			return end
		}
		switch l.action {
		case spawnEngine:
			if err := s.procs.spawn(); err != nil {
				s.log.plain(s.speaker("api"), mainTraceback("RuntimeError: cannot start the engine: "+err.Error()))
				return &ending{code: 1}
			}
			s.engine = newEngine(s)
		case loadShards:
			if end := s.loadShards(&interrupted); end != nil {
				return end
			}
		default:
			s.say(l)
		}
	}
	if s.set.ExitCode >= 0 && s.set.FailAt < 0 && s.faulty() {
		return &ending{code: s.set.ExitCode}
	}
	return nil
}

// configProblem is what the main process refuses before it starts an engine.
func (s *server) configProblem() (fatal, bool) {
	derived, wanted := s.model.maxLen, s.opt.maxModelLen
	switch world := s.opt.tp * s.opt.pp; {
	case !s.model.local && strings.HasPrefix(s.model.path, "/"):
		return fatal{from: fromAPI, text: "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{model}'. Use `repo_type` argument if needed."}, true
	case s.cuda && world > len(s.gpus):
		return fatal{from: fromAPI, text: fmt.Sprintf("  Value error, World size (%d) is larger than the number of available GPUs (%d) in this node.", world, len(s.gpus))}, true
	case s.model.configured && wanted > derived:
		return fatal{from: fromAPI, text: fmt.Sprintf("  Value error, User-specified max_model_len (%d) is greater than the derived max_model_len (max_position_embeddings=%d).", wanted, derived)}, true
	}
	if wanted > 0 {
		s.model.maxLen = wanted
	}
	return fatal{}, false
}

// loadShards shows the progress of the weights, over half of the load time, and has the faults that come at a percentage.
func (s *server) loadShards(interrupted *int) *ending {
	if problem, ok := s.model.weights(s.rel); ok {
		return s.fail(problem)
	}
	begin := time.Now()
	total := s.model.shards
	for n := 0; n <= total; n++ {
		percent := 100 * n / total
		s.progress(n, total, time.Since(begin))
		if s.set.StuckAt >= 0 && percent >= s.set.StuckAt {
			if end := s.wait(forEver, interrupted); end != nil {
				return end
			}
		}
		if s.set.FailAt >= 0 && percent >= s.set.FailAt && s.faulty() {
			if s.set.ExitCode >= 0 {
				return &ending{code: s.set.ExitCode}
			}
			f, _ := fatalNamed(s.set.FailText)
			return s.fail(f)
		}
		if n < total {
			if end := s.pass(shardShare/float64(total), interrupted); end != nil {
				return end
			}
		}
	}
	return nil
}

// faulty reports whether a fault of the load happens in this start.
func (s *server) faulty() bool {
	if s.set.FailUnless == "" {
		return true
	}
	_, err := os.Stat(s.set.FailUnless)
	return err != nil
}

func (s *server) fail(f fatal) *ending {
	if f.from == fromArgs {
		end := usageError{prog: "vllm", text: strings.TrimPrefix(f.text, "vllm: error: ")}.print()
		return &end
	}
	s.printFatal(f)
	return &ending{code: 1}
}

const forEver = time.Duration(1<<63 - 1)

// pass lets a share of the load time go by.
func (s *server) pass(share float64, interrupted *int) *ending {
	return s.wait(s.set.scaled(time.Duration(share*float64(s.set.LoadTime))), interrupted)
}

// wait waits for d while loading. The first SIGTERM is swallowed, as in both measured versions; a second one ends the
// process. The engine's death ends it too. Once the engine runs, its process keeps the time, so that stopping it stops
// the load.
func (s *server) wait(d time.Duration, interrupted *int) *ending {
	var elapsed <-chan time.Time
	var ticked <-chan error
	switch {
	case d <= 0:
		return nil
	case d == forEver:
	case s.procs.running():
		ticked = s.procs.tick(d)
	default:
		elapsed = time.After(d)
	}
	for {
		select {
		case <-elapsed:
			return nil
		case err := <-ticked:
			if err == nil {
				return nil
			}
			ticked = nil // the engine's death is on its way
		case <-s.procs.died():
			return s.engineFailed()
		case <-s.signals:
			if *interrupted++; *interrupted >= 2 {
				return s.terminated()
			}
		}
	}
}

// engineFailed is the end of a load whose engine was killed from outside.
func (s *server) engineFailed() *ending {
	s.log.plain(s.speaker("api"), mainTraceback("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': -9}"))
	return &ending{code: 1}
}

// terminated is the end of a load by its second SIGTERM; a third one is faster.
func (s *server) terminated() *ending {
	select {
	case <-time.After(s.set.scaled(s.set.TermTime)):
	case <-s.signals:
		return &ending{signal: syscall.SIGTERM}
	}
	s.log.plain(s.speaker("api"), mainTraceback("KeyboardInterrupt: terminated"))
	if s.rel.termExits {
		return &ending{code: 1}
	}
	return &ending{signal: syscall.SIGINT}
}

// progress is one line of the bar. The real one comes with an empty line before and after it.
func (s *server) progress(n, total int, took time.Duration) {
	rest, rate := "?", "?it/s"
	if n > 0 {
		rest = clock(took * time.Duration(total-n) / time.Duration(n))
		rate = fmt.Sprintf("%.2fit/s", float64(n)/max(took.Seconds(), 1e-6))
	}
	bar := fmt.Sprintf("\nLoading safetensors checkpoint shards: %3d%% Completed | %d/%d [%s<%s, %s]\n", 100*n/total, n, total, clock(took), rest, rate)
	if s.rel.prefixAll {
		bar = s.speaker("worker").String() + bar
	}
	if n == total {
		bar += "\n"
	}
	s.log.bare(bar)
}

func clock(d time.Duration) string {
	return fmt.Sprintf("%02d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}
