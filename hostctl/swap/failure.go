package swap

import (
	"errors"
	"fmt"
	"strings"

	"vllmhost/hostctl/systemd"
)

// startFailure says in an engine's terms why a unit did not come up, where systemd's own words speak of jobs and hooks.
func startFailure(unit string, err error) error {
	var job *systemd.JobError
	if !errors.As(err, &job) || job.Status.Name == "" {
		return err
	}
	s := job.Status
	if why, refused := strings.CutPrefix(s.StatusText, "Refused: "); refused {
		return fmt.Errorf("%s refused to start: %s", unit, why)
	}
	if why, failed := strings.CutPrefix(s.StatusText, "Failed: "); failed {
		return fmt.Errorf("%s did not come up: %s", unit, why)
	}
	if s.ExecMainCode != "" && s.FailedHook == "" {
		return fmt.Errorf("the engine of %s ended before it was ready: %s", unit, s.Failure())
	}
	return err
}
