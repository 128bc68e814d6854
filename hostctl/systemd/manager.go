package systemd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// Version returns systemd's version number, such as 252.
func (c *Client) Version(ctx context.Context) (int, error) {
	v, err := c.property(ctx, managerPath, managerIface, "Version")
	if err != nil {
		return 0, fmt.Errorf("cannot read the version of systemd: %w", err)
	}
	text, _ := v.(string)
	n, err := parseVersion(text)
	if err != nil {
		return 0, fmt.Errorf("cannot read the version of systemd: %v", err)
	}
	return n, nil
}

// parseVersion reads the number of "252.39-1~deb12u1", "257.13-1~deb13u1", "v255-2" or "249".
func parseVersion(text string) (int, error) {
	digits := strings.TrimPrefix(text, "v")
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0, fmt.Errorf("%q does not begin with a number", text)
	}
	return n, nil
}

// Stopping reports whether the system is shutting down.
func (c *Client) Stopping(ctx context.Context) (bool, error) {
	v, err := c.property(ctx, managerPath, managerIface, "SystemState")
	if err != nil {
		return false, fmt.Errorf("cannot read the state of the system: %w", err)
	}
	state, _ := v.(string)
	return state == "stopping", nil
}

// Kill sends a signal to every process of a unit. A unit that systemd does not know has none, which is a success.
func (c *Client) Kill(ctx context.Context, name string, sig syscall.Signal) error {
	err := checkName(name)
	if err == nil {
		_, err = c.call(ctx, managerPath, managerIface+".KillUnit", name, "all", int32(sig))
	}
	if err != nil && !errors.Is(err, ErrNoSuchUnit) {
		return fmt.Errorf("cannot send %v to %q: %w", sig, name, err)
	}
	return nil
}

// ResetFailed clears a unit's failed state and the counters behind StartLimitBurst=, which also count the starts that
// an operator asked for. A unit that is not loaded has none, which is a success.
func (c *Client) ResetFailed(ctx context.Context, name string) error {
	err := checkName(name)
	if err == nil {
		_, err = c.call(ctx, managerPath, managerIface+".ResetFailedUnit", name)
	}
	if err != nil && !errors.Is(err, ErrNoSuchUnit) {
		return fmt.Errorf("cannot reset the failed state of %q: %w", name, err)
	}
	return nil
}

// ReloadIfNeeded has systemd read all unit files again if it holds an outdated definition of one of the named units,
// and reports whether it did. A reload is not harmless: it can take GPUs away from running containers (NVIDIA
// container toolkit, issue 48), so there is at most one, and none for units that systemd has not loaded, which it reads
// anew when they start.
func (c *Client) ReloadIfNeeded(ctx context.Context, names ...string) (reloaded bool, err error) {
	patterns := make([]string, len(names))
	for i, name := range names {
		if err := checkName(name); err != nil {
			return false, fmt.Errorf("cannot reload systemd: %w", err)
		}
		patterns[i] = pattern(name)
	}
	loaded, err := c.List(ctx, patterns...)
	if err != nil {
		return false, fmt.Errorf("cannot see whether systemd needs a reload: %w", err)
	}
	for _, unit := range loaded {
		path, err := unitPath(unit.Name)
		if err != nil {
			return false, fmt.Errorf("cannot reload systemd: %w", err)
		}
		v, err := c.property(ctx, path, unitIface, "NeedDaemonReload")
		if err != nil {
			return false, fmt.Errorf("cannot see whether systemd needs a reload for %q: %w", unit.Name, err)
		}
		if needed, _ := v.(bool); !needed {
			continue
		}
		if _, err := c.call(ctx, managerPath, managerIface+".Reload"); err != nil {
			return false, fmt.Errorf("cannot reload systemd: %w", err)
		}
		return true, nil
	}
	return false, nil
}
