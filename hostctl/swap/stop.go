package swap

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"vllmhost/unitgen"
)

// Margins beyond the limits that systemd keeps itself: a job that is not over by then is never going to be.
const (
	jobMargin    = 30 * time.Second
	emptyTimeout = 10 * time.Second // from SIGKILL until a cgroup is empty
)

// stopAll stops instances and waits until nothing is left of them: the job's end alone does not say so.
func (s *run) stopAll(ctx context.Context, sections []unitgen.Section) (string, error) {
	gone := 0
	var units []string
	for _, sec := range sections {
		unit := unitgen.UnitName(sec.Instance)
		n, err := s.stop(ctx, unit, sec.DrainTimeout)
		if err != nil {
			return "", err
		}
		gone += n
		units = append(units, unit)
	}
	if len(units) == 0 {
		return "", nil
	}
	detail := strings.Join(units, ", ") + " stopped"
	if gone > 0 {
		detail += ", " + processes(gone) + " gone"
	}
	return detail, nil
}

func (s *run) stop(ctx context.Context, unit string, drain time.Duration) (gone int, err error) {
	before, err := s.Systemd.Unit(ctx, unit)
	if err != nil {
		return 0, err
	}
	members, err := s.Cgroups.Members(before.ControlGroup)
	if err != nil {
		return 0, err
	}
	s.Progress.Detail(fmt.Sprintf("stopping %s; open requests have %s", unit, drain))
	stopCtx, cancel := context.WithTimeout(ctx, drain+2*jobMargin)
	defer cancel()
	if err := s.Systemd.Stop(stopCtx, unit); err != nil {
		return 0, err
	}
	return len(members), s.emptied(ctx, unit, before.ControlGroup)
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
			return fmt.Errorf("cannot end %q: %s left after SIGKILL: %v", unit, processes(len(left)), left)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
