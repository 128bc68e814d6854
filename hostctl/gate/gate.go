// Package gate is what stands before and after an engine's start: guard lets an instance start only when nothing else
// holds what it needs, await lets it count as started only when it serves.
//
// Both run as root hooks of the unit, also after a crash, a reboot or a plain "systemctl start". They read the unit's
// [X-Vllmhost] section and never the profile, and they stop or kill nothing but their own unit.
package gate

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// Systemd is what the hooks ask of systemd.
type Systemd interface {
	Unit(ctx context.Context, name string) (systemd.UnitStatus, error)
	State(ctx context.Context, name string) (systemd.UnitStatus, error)
	Definition(ctx context.Context, name string) (load string, dropIns []string, err error)
	List(ctx context.Context, patterns ...string) ([]systemd.UnitStatus, error)
	Watch(ctx context.Context, name string) (<-chan systemd.UnitStatus, error)
	QueueStop(ctx context.Context, name string) error
}

// Hook is what guard and await share.
type Hook struct {
	Systemd Systemd
	// Notify sends lines to systemd, as sd_notify(3) has them: STATUS=, EXTEND_TIMEOUT_USEC=.
	Notify func(state string)
	Log    *slog.Logger
}

// Refusal is why an instance may not start, and what to type about it.
type Refusal struct {
	Check string // the check that refuses, one of [Checks]; empty for what cannot be skipped
	Why   string
	Hint  string // may be empty
}

func (r *Refusal) Error() string { return r.Why }

// Environment is what a hook keeps of the environment systemd gives it. The rest is the engine's own, and not to be
// trusted in a process of root's.
type Environment struct {
	MainPID      string // of the engine, in ExecStartPost= only
	InvocationID string
	APIKey       string // VLLM_API_KEY, from the unit's EnvironmentFile=

	// VisibleGPUs is CUDA_VISIBLE_DEVICES as the engine is going to find it, whoever set it.
	VisibleGPUs string
}

// TakeEnvironment reads a hook's environment and clears it, but for what sd_notify(3) and the journal need.
func TakeEnvironment() Environment {
	env := Environment{
		MainPID:      os.Getenv("MAINPID"),
		InvocationID: os.Getenv("INVOCATION_ID"),
		APIKey:       os.Getenv("VLLM_API_KEY"),
		VisibleGPUs:  os.Getenv("CUDA_VISIBLE_DEVICES"),
	}
	keep := map[string]string{}
	for _, name := range []string{"NOTIFY_SOCKET", "JOURNAL_STREAM"} {
		if value, set := os.LookupEnv(name); set {
			keep[name] = value
		}
	}
	os.Clearenv()
	for name, value := range keep {
		os.Setenv(name, value)
	}
	return env
}

// maxUnitFile is far above what a unit with the longest command line allowed can have, in bytes.
const maxUnitFile = 1 << 20

// loaded returns the [X-Vllmhost] section of the unit as systemd has it loaded, with the text it is of and its state.
func (h *Hook) loaded(ctx context.Context, unit string) (section unitgen.Section, text []byte, status systemd.UnitStatus, err error) {
	if status, err = h.Systemd.Unit(ctx, unit); err != nil {
		return section, nil, status, err
	}
	if text, err = readUnit(status.FragmentPath); err != nil {
		return section, nil, status, fmt.Errorf("cannot read the unit %q: %v", status.Name, err)
	}
	if section, err = unitgen.ParseSection(text); err != nil {
		err = fmt.Errorf("cannot use the unit %q: %w", status.FragmentPath, err)
	}
	return section, text, status, err
}

func readUnit(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxUnitFile {
		return nil, fmt.Errorf("%s is not a unit file", path)
	}
	return os.ReadFile(path)
}
