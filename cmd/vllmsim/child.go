package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childVariable tells this program that it is one of its own children, and which. It is no setting.
const childVariable = "_VLLMSIM_CHILD"

const (
	roleTracker = "tracker"
	roleEngine  = "engine"
	roleWorker  = "worker"
)

// childSpec is all that a child needs to know.
type childSpec struct {
	Role  string
	Title []string // argv
	Comm  string   // cut to 15 bytes by the kernel; the title when empty
	Name  string   // in the log

	PrefixAll    bool
	IgnoreTerm   bool
	DrainSeconds int

	DevDir    string
	GPUs      []int // memory on these
	Bystander []int // only descriptors of these

	ShmDir  string
	Shm     []shmFile
	LeakShm bool
	Sockets int // in the temporary directory

	Workers []childSpec
}

// Descriptors of a child. For the tracker the second one is the pipe that says that it has cleaned up.
const (
	parentFD  = 3
	trackerFD = 4
)

func runChild(text string) {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		fmt.Fprintf(os.Stderr, "vllmsim: cannot read %s: %v\n", childVariable, err)
		os.Exit(70)
	}
	os.Unsetenv(childVariable)
	unix.CloseOnExec(parentFD)
	unix.CloseOnExec(trackerFD)
	if spec.Comm == "" {
		spec.Comm = spec.Title[0]
	}
	os.WriteFile("/proc/self/comm", []byte(spec.Comm), 0) // the name of the main thread, which ps shows

	c := &child{spec: spec, parent: os.NewFile(parentFD, "parent"), tracker: os.NewFile(trackerFD, "tracker")}
	c.log = newLogger(release{prefixAll: spec.PrefixAll})
	switch spec.Role {
	case roleTracker:
		c.track()
	case roleEngine:
		c.runEngine()
	case roleWorker:
		c.runWorker()
	}
}

type child struct {
	spec    childSpec
	log     *logger
	parent  *os.File // requests to let time pass, and the answers
	tracker *os.File
	steps   atomic.Int64
}

func (c *child) speaker() speaker { return speaker{c.spec.Name, os.Getpid()} }

// hold makes and takes everything the process is known by.
func (c *child) hold() {
	for range c.spec.Sockets {
		leaveSocket()
	}
	for _, f := range c.spec.Shm {
		path := filepath.Join(c.spec.ShmDir, strings.ReplaceAll(f.Name, "{pid}", strconv.Itoa(os.Getpid())))
		if !c.spec.LeakShm {
			fmt.Fprintln(c.tracker, path)
		}
		f.create(path)
	}
	holdGPUs(c.spec.DevDir, c.spec.GPUs, 1)
	holdGPUs(c.spec.DevDir, c.spec.Bystander, 3)
}

// runEngine is the engine's process: it starts the workers, then lets time pass when asked, if all workers agree.
func (c *child) runEngine() {
	terminated := c.onTerm()
	c.hold()
	var workers []*bufio.ReadWriter
	var pids []string
	for _, spec := range c.spec.Workers {
		ours, theirs, err := socketPair()
		if err != nil {
			os.Exit(1)
		}
		cmd, err := startChild(spec, theirs, c.tracker)
		if err != nil {
			os.Exit(1)
		}
		go c.watch(cmd)
		workers = append(workers, bufio.NewReadWriter(bufio.NewReader(ours), bufio.NewWriter(ours)))
		pids = append(pids, strconv.Itoa(cmd.Process.Pid))
	}
	fmt.Fprintln(c.parent, strings.Join(pids, " "))
	go c.answer(workers)
	<-terminated
	c.log.line(c.speaker(), infoLevel, "core.py:1454", "[shutdown] EngineCore: trigger received signal=SIGTERM")
	if c.spec.DrainSeconds > 0 {
		c.log.line(c.speaker(), infoLevel, "core.py:1635", fmt.Sprintf("[shutdown] EngineCore: start mode=drain timeout=%ds", c.spec.DrainSeconds))
		c.untilIdle(time.Duration(c.spec.DrainSeconds) * time.Second)
	} else {
		c.log.line(c.speaker(), infoLevel, "core.py:1635", "[shutdown] EngineCore: start mode=abort timeout=0s")
	}
	c.log.line(c.speaker(), infoLevel, "core.py:1499", "[shutdown] EngineCore: exiting busy loop")
	os.Exit(0)
}

// answer lets time pass whenever the main process asks, until that is gone; then the engine lives on for nobody.
func (c *child) answer(workers []*bufio.ReadWriter) {
	requests := bufio.NewReader(c.parent)
	var due time.Time
	for {
		line, err := requests.ReadString('\n')
		if err != nil {
			return
		}
		c.steps.Add(1)
		d, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		// Steps follow each other without the time a sleep oversleeps.
		if now := time.Now(); now.Sub(due) > 2*time.Millisecond {
			due = now
		}
		due = due.Add(time.Duration(d))
		time.Sleep(time.Until(due))
		for _, w := range workers {
			w.WriteString("0\n")
			w.Flush()
			if _, err := w.ReadString('\n'); err != nil {
				select {} // watch ends the process
			}
		}
		fmt.Fprintln(c.parent, "ok")
	}
}

// watch ends the engine when a worker dies.
func (c *child) watch(worker *exec.Cmd) {
	worker.Wait()
	c.log.line(c.speaker(), errorLevel, "multiproc_executor.py:284", fmt.Sprintf("Worker proc %s died unexpectedly, shutting down executor.", worker.Args[0]))
	os.Exit(1)
}

// untilIdle returns when no step was asked for during a fifth of a second, and after limit in any case.
func (c *child) untilIdle(limit time.Duration) {
	end := time.Now().Add(limit)
	for time.Now().Before(end) {
		before := c.steps.Load()
		time.Sleep(200 * time.Millisecond)
		if c.steps.Load() == before {
			return
		}
	}
}

// runWorker answers the engine until that is gone.
func (c *child) runWorker() {
	terminated := c.onTerm()
	go func() {
		<-terminated
		os.Exit(0)
	}()
	c.hold()
	requests := bufio.NewReader(c.parent)
	for {
		if _, err := requests.ReadString('\n'); err != nil {
			break
		}
		fmt.Fprintln(c.parent, "ok")
	}
	if c.spec.IgnoreTerm {
		select {}
	}
	c.log.line(c.speaker(), infoLevel, "multiproc_executor.py:843", "Parent process exited, terminating worker queues")
}

// track removes the shared memory that the others registered, when the last of them is gone. Its own death by SIGKILL
// is what leaves files behind.
func (c *child) track() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	names, _ := io.ReadAll(c.parent)
	semaphores, segments := 0, 0
	for path := range strings.FieldsSeq(string(names)) {
		if os.Remove(path) != nil {
			continue
		}
		if strings.HasPrefix(filepath.Base(path), "sem.") {
			semaphores++
		} else {
			segments++
		}
	}
	for kind, n := range map[string]int{"semaphore": semaphores, "shared_memory": segments} {
		if n > 0 {
			c.log.bare(fmt.Sprintf("/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: "+
				"There appear to be %d leaked %s objects to clean up at shutdown\n  warnings.warn('resource_tracker: There appear to be %%d '\n", n, kind))
		}
	}
}

// onTerm returns a channel that SIGTERM and SIGINT end, unless they are to be ignored.
func (c *child) onTerm() <-chan os.Signal {
	ch := make(chan os.Signal, 1)
	if c.spec.IgnoreTerm {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	} else {
		signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT)
	}
	return ch
}
