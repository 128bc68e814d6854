package gate

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"vllmhost/hostctl/ports"
	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// The checks before a start, by the names that --skip-check and an instance's allow know them.
const (
	CheckDropIn = "drop-in"    // drop-ins leave alone what the definition decides
	CheckEngine = "engine"     // the engine's program is there
	CheckModel  = "model"      // the model is complete and readable
	CheckPort   = "port"       // nobody else listens, or has bound, where the instance wants to
	CheckGPU    = "gpu"        // the GPUs and their driver are there, and whole
	CheckMemory = "gpu-memory" // enough of the GPUs' memory is free, and stays so
	CheckShm    = "shm"        // the host's /dev/shm has room, where the instance uses it
	CheckDisk   = "disk"       // the disks have room for caches, units and records
	CheckLimits = "limits"     // the kernel allows what an engine needs
)

// Checks are the names of all checks that can be skipped.
func Checks() []string {
	return []string{CheckDropIn, CheckEngine, CheckModel, CheckPort, CheckGPU, CheckMemory, CheckShm, CheckDisk, CheckLimits}
}

// checkDropIns refuses a unit whose drop-ins contradict its definition: all that is derived from that (conflicts, the
// port to look at, the GPUs to wait for) would be wrong.
func checkDropIns(s unitgen.Section, u systemd.UnitStatus, environment []string) error {
	wrong := s.Overrides(u.ExecStart, environment)
	if len(wrong) == 0 {
		return nil
	}
	return &Refusal{
		Check: CheckDropIn,
		Why:   fmt.Sprintf("%s: %s", strings.Join(blame(u.DropIns), ", "), strings.Join(wrong, "; ")),
		Hint:  "systemctl cat " + u.Name,
	}
}

// blame picks the drop-ins that set a command or an environment. Where none of them does, all are named.
func blame(dropIns []string) []string {
	var guilty []string
	for _, path := range dropIns {
		text, _ := readUnit(path)
		for line := range bytes.Lines(text) {
			key, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte("="))
			switch string(bytes.TrimSpace(key)) {
			case "ExecStart", "Environment", "EnvironmentFile", "UnsetEnvironment", "PassEnvironment":
				if !slices.Contains(guilty, path) {
					guilty = append(guilty, path)
				}
			}
		}
	}
	switch {
	case len(guilty) > 0:
		return guilty
	case len(dropIns) > 0:
		return dropIns
	}
	return []string{"the unit as systemd has it loaded"}
}

// checkPort refuses when something holds what the instance is going to listen on, except for what is exempt.
func checkPort(s unitgen.Section, find func(unitgen.Section) ([]ports.Holder, error), exempt func(ports.Holder) bool) error {
	holders, err := find(s)
	if err != nil {
		return err
	}
	holders = slices.DeleteFunc(holders, exempt)
	if len(holders) == 0 {
		return nil
	}
	refusal := &Refusal{Check: CheckPort, Why: fmt.Sprintf("%s is in use: %s", s.Where(), holders[0])}
	if s.Port != 0 {
		refusal.Hint = fmt.Sprintf("ss -tlnp 'sport = :%d'", s.Port)
	}
	return refusal
}

// checkEngine refuses when the engine's program is not there, or no program.
func checkEngine(s unitgen.Section) error {
	info, err := os.Stat(s.Command)
	why := ""
	switch {
	case err != nil:
		why = fmt.Sprintf("cannot find the engine's program: %v", err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		why = fmt.Sprintf("the engine's program %q is not executable", s.Command)
	default:
		return nil
	}
	return &Refusal{Check: CheckEngine, Why: why, Hint: "ls -l " + s.Command}
}

// sharing are the instances among others that may use one of the same GPUs.
func sharing(s unitgen.Section, others []unitgen.Section) []unitgen.Section {
	return slices.DeleteFunc(slices.Clone(others), func(o unitgen.Section) bool { return !unitgen.SharesGPU(s, o) })
}

// conflict refuses when s cannot run beside another instance that runs or starts.
func conflict(s, other unitgen.Section) error {
	why := unitgen.Conflict(s, other)
	if why == "" {
		return nil
	}
	return &Refusal{Why: fmt.Sprintf("%s runs, and %s", unitgen.UnitName(other.Instance), why), Hint: "vllmhost swap " + s.Instance}
}

// crowd refuses when s and all that share a GPU with it want more than there is, although each two of them fit.
func crowd(s unitgen.Section, others []unitgen.Section) error {
	why := unitgen.Crowd(append(sharing(s, others), s))
	if why == "" {
		return nil
	}
	return &Refusal{Why: why, Hint: "vllmhost status"}
}

// underWay refuses when an operation that is not starting s right now holds something that s needs.
func underWay(s unitgen.Section, o Operation) error {
	if slices.Contains(o.MayStart, s.Instance) {
		return nil
	}
	for _, other := range o.Sections {
		if other.Instance == s.Instance || unitgen.Conflict(s, other) != "" {
			return &Refusal{
				Why:  fmt.Sprintf("swap %s (%s) is under way", o.ID, o.Summary),
				Hint: fmt.Sprintf("vllmhost swap %s, when it is over", s.Instance),
			}
		}
	}
	return nil
}

// awaitSibling waits until a start that shares a GPU with ours is over: two engines that size their memory at the same
// time size it wrongly, and serve so. It ends when that start has its engine ready, or failed, or gave way to another.
func (g *Guard) awaitSibling(ctx context.Context, sibling Start) error {
	unit := unitgen.UnitName(sibling.Section.Instance)
	ctx, cancel := context.WithTimeout(ctx, sibling.Section.StartTimeout)
	defer cancel()
	states, err := g.Systemd.Watch(ctx, unit)
	if err != nil {
		return err
	}
	wait := g.waiting()
	defer wait.stop()
	text := fmt.Sprintf("Waiting for %s, which loads on the same GPU", unit)
	wait.say(text)
	for u := range states {
		if u.InvocationID != sibling.InvocationID || u.Active == "active" || u.Sub == "auto-restart" || over(u) {
			return nil
		}
	}
	return fmt.Errorf("%s, which loads on the same GPU, is not ready after %s", unit, sibling.Section.StartTimeout)
}
