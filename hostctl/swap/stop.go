package swap

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"vllmhost/unitgen"
)

// Limits of a stop, beyond those that systemd keeps itself.
const (
	jobMargin    = 30 * time.Second       // a job that is not over by then is never going to be
	emptyTimeout = 10 * time.Second       // from SIGKILL until a cgroup is empty
	serverGrace  = 2 * time.Second        // for a server whose engine is gone, and that may wait for it for ever
	stopInterval = 50 * time.Millisecond  // between looks at what is left
	countTimeout = 500 * time.Millisecond // for a server to say how many requests it is working on, and between
)

// stopAll stops instances and waits until nothing is left of them: the job's end alone does not say so.
func (s *run) stopAll(ctx context.Context, sections []unitgen.Section) (string, error) {
	gone := 0
	var units, requests []string
	for _, sec := range sections {
		n, ended, err := s.stop(ctx, sec)
		if err != nil {
			return "", err
		}
		gone += n
		units = append(units, unitgen.UnitName(sec.Instance))
		if ended != "" {
			requests = append(requests, ended)
		}
	}
	if len(units) == 0 {
		return "", nil
	}
	detail := strings.Join(units, ", ") + " stopped"
	if gone > 0 {
		detail += ", " + count(gone, "process", "processes") + " gone"
	}
	return strings.Join(append([]string{detail}, requests...), "; "), nil
}

// stop stops one instance. It returns how many processes are gone, and in a few words what became of its requests.
func (s *run) stop(ctx context.Context, sec unitgen.Section) (gone int, requests string, err error) {
	unit := unitgen.UnitName(sec.Instance)
	drain := &draining{run: s, section: sec}
	before, err := s.Systemd.State(ctx, unit)
	if err != nil {
		return 0, "", err
	}
	members, err := s.Cgroups.Members(before.ControlGroup)
	if err != nil {
		return 0, "", err
	}
	if before.Active == "active" { // else whoever answers there is another one
		drain.count(ctx)
	}
	s.Progress.Detail(fmt.Sprintf("stopping %s; %s %s", unit, drain.open(), sec.DrainTimeout))

	ctx, cancel := context.WithTimeout(ctx, sec.DrainTimeout+2*jobMargin)
	defer cancel()
	began := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Systemd.Stop(ctx, unit) }()
	if err := s.await(ctx, stopped, unit, before.ControlGroup, members, drain); err != nil {
		return 0, "", err
	}
	return len(members), drain.ended(time.Since(began)), s.emptied(ctx, unit, before.ControlGroup)
}

// await waits for the end of a stop. A server that is left without its engine waits for it for ever, so it is killed:
// its requests can end no more.
func (s *run) await(ctx context.Context, stopped <-chan error, unit, cgroup string, members []Member, drain *draining) error {
	isEngine := func(m Member) bool { return m.Engine }
	hadEngine := slices.ContainsFunc(members, isEngine)
	look, ask := time.NewTicker(stopInterval), time.NewTicker(countTimeout)
	defer look.Stop()
	defer ask.Stop()
	var alone time.Time // since when the server is without its engine
	for killed := false; ; {
		select {
		case err := <-stopped:
			return err
		case <-ask.C:
			drain.recount(ctx)
		case <-look.C:
			left, err := s.Cgroups.Members(cgroup)
			switch {
			case err != nil || killed || !hadEngine || len(left) == 0 || slices.ContainsFunc(left, isEngine):
			case alone.IsZero():
				alone = time.Now()
			case time.Since(alone) >= serverGrace:
				killed = true
				if err := s.Systemd.Kill(ctx, unit, syscall.SIGKILL); err != nil {
					return err
				}
			}
		}
	}
}

// emptied waits until a stopped unit's cgroup has no processes, after a SIGKILL if need be. Nothing signals a cgroup's
// end on both cgroup versions, so this polls.
func (s *run) emptied(ctx context.Context, unit, cgroup string) error {
	ctx, cancel := context.WithTimeout(ctx, emptyTimeout)
	defer cancel()
	for killed := false; ; killed = true {
		left, err := s.Cgroups.Members(cgroup)
		if err != nil || len(left) == 0 {
			return err
		}
		if !killed {
			if err := s.Systemd.Kill(ctx, unit, syscall.SIGKILL); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			var texts []string
			for _, m := range left {
				texts = append(texts, m.Text)
			}
			return fmt.Errorf("cannot end %q: SIGKILL does not end %s: %s", unit, count(len(left), "process", "processes"),
				strings.Join(texts, ", "))
		case <-time.After(stopInterval):
		}
	}
}

// draining counts the requests of an instance that is being stopped.
type draining struct {
	run     *run
	section unitgen.Section
	known   bool // how many there were when the stop began
	before  int
	left    atomic.Int64 // the last number heard of
	asking  atomic.Bool
}

func (d *draining) count(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	d.before, d.known = d.run.Requests.Running(ctx, d.section)
	d.left.Store(int64(d.before))
}

// recount asks again, beside the wait: a server may answer late while it drains, or no more.
func (d *draining) recount(ctx context.Context) {
	if !d.known || d.before == 0 || !d.asking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer d.asking.Store(false)
		ctx, cancel := context.WithTimeout(ctx, countTimeout)
		defer cancel()
		if n, ok := d.run.Requests.Running(ctx, d.section); ok {
			d.left.Store(int64(n))
		}
	}()
}

func (d *draining) open() string {
	if !d.known {
		return "open requests have"
	}
	return count(d.before, "open request has", "open requests have")
}

// ended says what became of the requests, once the stop took that long.
func (d *draining) ended(took time.Duration) string {
	left := min(int(d.left.Load()), d.before)
	switch {
	case !d.known || d.before == 0:
		return ""
	case took < d.section.DrainTimeout || left == 0:
		return count(d.before, "request", "requests") + " ended"
	}
	return fmt.Sprintf("%d of %s cut at drain_timeout (%s)", left, count(d.before, "request", "requests"), d.section.DrainTimeout)
}

// count says how many there are of something, for people.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
