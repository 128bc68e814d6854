package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"vllmhost/hostctl/ports"
	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// Guard decides whether an instance may start.
type Guard struct {
	Hook
	Claims Claims
	GPUs   GPUs
	// Clean removes the instance's own stale files from the host's /dev/shm, and says in a few words what it removed. Nil
	// removes nothing.
	Clean func(ctx context.Context, s unitgen.Section) (detail string, err error)
	// Holders lists who has a socket where an instance wants to listen; nil looks at this host.
	Holders func(s unitgen.Section) ([]ports.Holder, error)
}

// stopTimeout is how long systemd may take to queue a stop.
const stopTimeout = 10 * time.Second

// Run lets an instance start or refuses. What passes by itself, such as GPU memory that is just being freed, it waits for.
// When it refuses, it has queued the stop of the instance's own unit: a failing ExecStartPre= alone would be tried again
// by Restart=always, at a moment nobody chose. The error is a *Refusal when something stands in the way, and another kind
// when that could not be found out; both refuse.
func (g *Guard) Run(ctx context.Context, instance string, env Environment) error {
	err := g.check(ctx, instance, env)
	if err == nil {
		g.Notify("STATUS=Starting")
		return nil
	}
	if ctx.Err() != nil {
		return errors.New("stopped while checking") // systemd's own wish: there is nothing to refuse any more
	}
	status := "Refused: " + err.Error()
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.Hint != "" {
		status += ". To type: " + refusal.Hint
	}
	g.Notify("STATUS=" + status)
	// The stop sends this process a SIGTERM, often before systemd has answered.
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if stopErr := g.Systemd.QueueStop(stopCtx, unitgen.UnitName(instance)); stopErr != nil {
		g.Log.Error(fmt.Sprintf("cannot stop %s, it may be tried again: %v", unitgen.UnitName(instance), stopErr))
	}
	return err
}

func (g *Guard) check(ctx context.Context, instance string, env Environment) error {
	self, text, status, err := g.loaded(ctx, unitgen.UnitName(instance))
	if err != nil {
		return err
	}
	skip := append(g.Claims.Skipped(instance), self.Allow...)
	visible := []string{"CUDA_VISIBLE_DEVICES=" + env.VisibleGPUs}
	if err := g.pass(skip, checkDropIns(self, status, visible)); err != nil {
		return err
	}
	siblings, err := g.claim(ctx, Start{self, env.InvocationID, unitgen.Hash(text)})
	if err != nil {
		return err
	}
	if err := g.pass(skip, checkPort(self, g.holders(), nobody)); err != nil {
		return err
	}
	for _, sibling := range siblings {
		if err := g.awaitSibling(ctx, sibling); err != nil {
			return err
		}
	}
	if err := g.awaitGPUs(ctx, self, skip); err != nil {
		return err
	}
	if g.Clean == nil {
		return nil
	}
	removed, err := g.Clean(ctx, self)
	if err != nil {
		return err
	}
	if removed != "" {
		g.Log.Info(removed)
	}
	return nil
}

// pass lets an error through unless it is a refusal by a check that is to be skipped: then it is only told.
func (g *Guard) pass(skip []string, err error) error {
	var refusal *Refusal
	if errors.As(err, &refusal) && slices.Contains(skip, refusal.Check) {
		g.Log.Warn(fmt.Sprintf("check %q skipped: %v", refusal.Check, err))
		return nil
	}
	return err
}

// claim takes what the instance needs, unless somebody else has it. It returns the starts under way on a GPU that both
// may use.
func (g *Guard) claim(ctx context.Context, start Start) (siblings []Start, err error) {
	self := start.Section
	void := func(s Start) (bool, error) {
		status, err := g.Systemd.State(ctx, unitgen.UnitName(s.Section.Instance))
		return err == nil && (status.InvocationID != s.InvocationID || over(status)), err
	}
	ended := func(o Operation) (bool, error) {
		status, err := g.Systemd.State(ctx, OperationUnit(o.ID))
		return err == nil && over(status) && status.Job.ID == 0, err
	}
	var others []unitgen.Section
	err = g.Claims.Take(start, void, ended, func(starts []Start, operations []Operation) error {
		for _, o := range operations {
			if err := underWay(self, o); err != nil {
				return err
			}
		}
		for _, s := range starts {
			if err := conflict(self, s.Section); err != nil {
				return err
			}
			others = append(others, s.Section)
			if unitgen.SharesGPU(self, s.Section) {
				siblings = append(siblings, s)
			}
		}
		running, err := g.running(ctx, self)
		if err != nil {
			return err
		}
		for _, other := range running {
			if err := conflict(self, other); err != nil {
				return err
			}
			if !slices.ContainsFunc(others, func(o unitgen.Section) bool { return o.Instance == other.Instance }) {
				others = append(others, other)
			}
		}
		return crowd(self, others)
	})
	return siblings, err
}

// running are the other instances that run, also without a claim: started before /run was emptied, or by an older program.
func (g *Guard) running(ctx context.Context, self unitgen.Section) ([]unitgen.Section, error) {
	all, err := g.Systemd.List(ctx, "vllm-*.service")
	if err != nil {
		return nil, err
	}
	var sections []unitgen.Section
	for _, status := range all {
		// One in start-pre has not passed its own guard yet.
		if status.Name == unitgen.UnitName(self.Instance) || over(status) || status.Sub == "start-pre" {
			continue
		}
		other, _, status, err := g.loaded(ctx, status.Name)
		if over(status) {
			continue // it ended, and was unloaded, just now
		}
		if errors.Is(err, unitgen.ErrNotOurs) {
			continue
		}
		if err != nil {
			return nil, err
		}
		sections = append(sections, other)
	}
	return sections, nil
}

func over(status systemd.UnitStatus) bool {
	return status.Active == "inactive" || status.Active == "failed"
}

func (g *Guard) holders() func(unitgen.Section) ([]ports.Holder, error) {
	if g.Holders != nil {
		return g.Holders
	}
	return holdersOf
}

func nobody(ports.Holder) bool { return false }

// wait tells systemd, for as long as the guard waits, what for, and that the start timeout must not end it.
type wait struct {
	notify func(string)
	quit   chan struct{}
	mu     sync.Mutex
	text   string
}

func (g *Guard) waiting() *wait {
	w := &wait{notify: g.Notify, quit: make(chan struct{})}
	go func() {
		tick := time.NewTicker(reportInterval)
		defer tick.Stop()
		for {
			select {
			case <-w.quit:
				return
			case <-tick.C:
				w.tell()
			}
		}
	}()
	return w
}

// say is what is waited for from now on.
func (w *wait) say(text string) {
	w.mu.Lock()
	news := text != w.text
	w.text = text
	w.mu.Unlock()
	if news {
		w.tell()
	}
}

func (w *wait) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.text != "" {
		w.notify(fmt.Sprintf("STATUS=%s\nEXTEND_TIMEOUT_USEC=%d", w.text, extension.Microseconds()))
	}
}

func (w *wait) stop() { close(w.quit) }
