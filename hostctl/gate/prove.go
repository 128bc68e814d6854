package gate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"vllmhost/hostctl/ports"
	"vllmhost/hostctl/probe"
	"vllmhost/hostctl/proc"
	"vllmhost/unitgen"
)

// errNotListening says that nothing listens yet where the instance should.
var errNotListening = errors.New("nothing listens")

// Proof shows that an instance serves.
type Proof struct{ probe.Answer }

// prove checks that the listener belongs to the cgroup, and that it answers with the right model and makes a token.
// Health is a matter of identity and work: an orphan of another instance answers 200 as well.
func prove(ctx context.Context, s unitgen.Section, cgroup, apiKey string) (Proof, error) {
	if err := ownsSocket(s, cgroup); err != nil {
		return Proof{}, err
	}
	target := probe.Target{Host: s.Host, Port: s.Port, UDS: s.UDS, TLS: s.TLS, APIKey: apiKey, Models: s.Served}
	answer, err := target.Ready(ctx)
	return Proof{answer}, err
}

func ownsSocket(s unitgen.Section, cgroup string) error {
	var holders []ports.Holder
	var err error
	if s.UDS != "" {
		holders, err = ports.UnixHolders(s.UDS)
	} else {
		holders, err = ports.Holders(s.Port)
	}
	if err != nil {
		return err
	}
	listening := false
	for _, h := range holders {
		if h.State != ports.Listening {
			continue
		}
		listening = true
		if h.Process == nil || !within(h.Process.Cgroup, cgroup) {
			return fmt.Errorf("%s belongs to another process: %s", s.Where(), h)
		}
	}
	if !listening {
		return errNotListening
	}
	return nil
}

func within(cgroup, unit string) bool {
	return unit != "" && (cgroup == unit || strings.HasPrefix(cgroup, unit+"/"))
}

// Prover proves from outside of the unit that a running instance serves.
type Prover struct{ Systemd Systemd }

// Prove returns in a few words how the instance answered.
func (p Prover) Prove(ctx context.Context, s unitgen.Section) (string, error) {
	status, err := p.Systemd.Unit(ctx, unitgen.UnitName(s.Instance))
	if err != nil {
		return "", err
	}
	if status.Active != "active" {
		return "", fmt.Errorf("%s is %s (%s)", status.Name, status.Active, status.Sub)
	}
	key, err := apiKey(s.EnvFile)
	if err != nil {
		return "", err
	}
	proof, err := prove(ctx, s, status.ControlGroup, key)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("owns %s, answers as %q, a token after %.1fs", s.Where(), proof.Model, proof.FirstToken.Seconds()), nil
}

// apiKey reads VLLM_API_KEY from an EnvironmentFile= of the unit's.
func apiKey(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the API key: %v", err)
	}
	defer f.Close()
	key := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if ok && strings.TrimSpace(name) == "VLLM_API_KEY" {
			key = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return key, nil
}

// unitCgroup is the cgroup of a unit's processes, from one of them: in ExecStartPost= the unit's own property may not be
// readable yet.
func unitCgroup(pid int) (string, error) { return proc.CgroupOf(pid) }
