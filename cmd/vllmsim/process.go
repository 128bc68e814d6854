package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// processTree is what the main process starts, in the shape of the real one:
//
//	vllm serve
//	├─ python3 -c from multiprocessing.resource_tracker   removes shared memory when all the others are gone
//	└─ VLLM::EngineCore                                   keeps the time of the steps
//	   └─ VLLM::Worker, VLLM::Worker_TP0, ...             none on one GPU; on a CPU always
//
// The children are this program again. They hold what the real ones hold and answer to time; the main process does the
// talking and the thinking. They are not told to end when the main process is killed, because the real ones are not.
type processTree struct {
	s          *server
	rendezvous string // file through which CPU workers find each other

	engine    *exec.Cmd
	exited    chan struct{} // closed when the engine's process is gone
	clock     io.ReadWriteCloser
	ticks     sync.Mutex // held from a tick's question to its answer
	answers   *bufio.Reader
	workerPID []int

	trackerPipe *os.File // open as long as anything may still own shared memory
	trackerDone *os.File // ends when the tracker has cleaned up
}

func newProcessTree(s *server) *processTree {
	p := &processTree{s: s}
	if !s.cuda {
		p.rendezvous = temporary("vllm_dist_" + randomHex(32))
		os.WriteFile(p.rendezvous, make([]byte, 2400), 0o600)
	}
	for range 2 {
		leaveSocket()
	}
	if s.set.GPUBystanders {
		holdGPUs(s.set.DevDir, s.gpus, 3)
	}
	return p
}

// world is the number of workers, none where the engine does the work itself.
func (p *processTree) world() int {
	if n := p.s.opt.tp * p.s.opt.pp; n > 1 || !p.s.cuda {
		return n
	}
	return 0
}

// spawn starts the tracker and the engine, and returns when the engine has started its workers.
func (p *processTree) spawn() error {
	if err := p.spawnTracker(); err != nil {
		return err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	p.clock, p.answers = ours, bufio.NewReader(ours)
	if p.engine, err = startChild(p.engineSpec(), theirs, p.trackerPipe); err != nil {
		return err
	}
	p.exited = make(chan struct{})
	go func() {
		p.engine.Wait()
		close(p.exited)
	}()
	hello, err := p.answers.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the engine did not answer: %v", err)
	}
	for field := range strings.FieldsSeq(hello) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return fmt.Errorf("the engine answered %q", hello)
		}
		p.workerPID = append(p.workerPID, pid)
	}
	return nil
}

func (p *processTree) spawnTracker() error {
	names, trackerPipe, err := os.Pipe()
	if err != nil {
		return err
	}
	done, cleaned, err := os.Pipe()
	if err != nil {
		return err
	}
	p.trackerPipe, p.trackerDone = trackerPipe, done
	spec := childSpec{Role: roleTracker, Title: []string{"python3", "-c", "from multiprocessing.resource_tracker import main;main(5)"}, Comm: "python3"}
	cmd, err := startChild(spec, names, cleaned)
	if err != nil {
		return err
	}
	go cmd.Wait()
	return nil
}

// engineSpec describes the engine's process and its workers.
func (p *processTree) engineSpec() childSpec {
	s := p.s
	prefix := "VLLM"
	if v := os.Getenv("VLLM_PROCESS_NAME_PREFIX"); v != "" {
		prefix = v
	}
	base := childSpec{
		PrefixAll: s.rel.prefixAll, IgnoreTerm: s.set.IgnoreTerm || s.set.Orphan, LeakShm: s.set.LeakShm,
		DrainSeconds: s.opt.drain, DevDir: s.set.DevDir, ShmDir: s.set.ShmDir,
	}
	engine := base
	engine.Role, engine.Name = roleEngine, "EngineCore"
	engine.Title = []string{prefix + "::EngineCore"}
	engine.Sockets = 1
	world := p.world()
	if world == 0 {
		engine.GPUs = s.gpus[:1]
	} else if s.set.GPUBystanders {
		engine.Bystander = s.gpus
	}
	if !s.cuda {
		engine.Sockets = 3
	}
	for rank := range world {
		w := base
		w.Role, w.Name, w.Sockets = roleWorker, "Worker"+p.rankSuffix(rank), 2
		w.Title = []string{prefix + "::" + w.Name}
		if s.cuda && rank < len(s.gpus) {
			w.GPUs = s.gpus[rank : rank+1]
		}
		engine.Workers = append(engine.Workers, w)
	}
	assignShm(&engine, s.cuda, p.rendezvous, s.set.ShmExtra)
	return engine
}

// rankSuffix names the dimensions that a worker has a place in, as the real titles do.
func (p *processTree) rankSuffix(rank int) string {
	var b strings.Builder
	if p.s.opt.pp > 1 {
		fmt.Fprintf(&b, "_PP%d", rank/p.s.opt.tp)
	}
	if p.s.opt.tp > 1 {
		fmt.Fprintf(&b, "_TP%d", rank%p.s.opt.tp)
	}
	return b.String()
}

func (p *processTree) engineSpeaker() speaker {
	if p.engine == nil {
		return speaker{"EngineCore", 0}
	}
	return speaker{"EngineCore", p.engine.Process.Pid}
}

func (p *processTree) workerSpeakers() []speaker {
	if len(p.workerPID) == 0 {
		return []speaker{p.engineSpeaker()}
	}
	var all []speaker
	for rank, pid := range p.workerPID {
		all = append(all, speaker{"Worker" + p.rankSuffix(rank), pid})
	}
	return all
}

// running reports whether the engine's process has been started.
func (p *processTree) running() bool { return p.exited != nil }

// died is closed when the engine's process is gone; it is nil, and blocks, before there is one.
func (p *processTree) died() <-chan struct{} { return p.exited }

// tick asks the engine and each worker to let d pass. The answer is nil, or an error when the engine is gone. A stopped
// process keeps its answer back, so whatever waits for it stands still.
func (p *processTree) tick(d time.Duration) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- p.pass(d) }()
	return answer
}

func (p *processTree) pass(d time.Duration) error {
	p.ticks.Lock()
	defer p.ticks.Unlock()
	if _, err := fmt.Fprintf(p.clock, "%d\n", d); err != nil {
		return err
	}
	_, err := p.answers.ReadString('\n')
	return err
}

// kill ends the engine at once; its workers follow when they notice.
func (p *processTree) kill() {
	if p.engine != nil && !p.s.set.Orphan {
		p.engine.Process.Kill()
		<-p.exited
	}
}

// end kills what is left and waits until the shared memory is gone too, unless the engine is meant to survive.
func (p *processTree) end() {
	p.kill()
	if p.trackerPipe == nil || p.s.set.Orphan {
		return
	}
	for _, pid := range p.workerPID {
		unix.Kill(pid, unix.SIGKILL)
	}
	p.trackerPipe.Close()
	p.trackerDone.SetReadDeadline(time.Now().Add(5 * time.Second))
	io.Copy(io.Discard, p.trackerDone)
}

// startChild runs this program again as the process that spec describes, with files as its descriptors 3 and up. The
// first of them is closed here: it is the child's end.
func startChild(spec childSpec, theirs, shared *os.File) (*exec.Cmd, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: self, Args: spec.Title, Env: append(os.Environ(), childVariable+"="+string(text)),
		Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: []*os.File{theirs, shared},
	}
	err = cmd.Start()
	theirs.Close()
	if spec.Role == roleTracker {
		shared.Close()
	}
	return cmd, err
}

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	unix.SetNonblock(fds[0], true) // so that the runtime's poller takes it
	return os.NewFile(uintptr(fds[0]), "clock"), os.NewFile(uintptr(fds[1]), "clock"), nil
}
