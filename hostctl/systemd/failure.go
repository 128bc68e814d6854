package systemd

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// Failure says in words why the unit does not run as it should: its result and how its processes ended. It is empty
// where systemd knows of nothing wrong.
func (s UnitStatus) Failure() string {
	if s.ConditionFailed {
		return "a condition of the unit does not hold"
	}
	var parts []string
	if s.Result != "" && s.Result != "success" {
		parts = append(parts, "result "+s.Result)
	}
	// When a hook fails, systemd ends the main process with SIGTERM: that is no news then.
	hooked := s.FailedHook != ""
	if hooked {
		parts = append(parts, s.FailedHook)
	}
	if s.ExecMainCode != "" && !(hooked && s.ExecMainCode == "killed") {
		if s.ExecMainCode != "exited" || s.ExecMainStatus != 0 || s.Active != "active" {
			parts = append(parts, "main process "+end(s.ExecMainCode, s.ExecMainStatus))
		}
	}
	return strings.Join(parts, ", ")
}

// state is a unit's state as systemctl writes it.
func (s UnitStatus) state() string {
	if s.Load == "not-found" {
		return "not found"
	}
	if s.Sub == "" || s.Sub == s.Active {
		return s.Active
	}
	return fmt.Sprintf("%s (%s)", s.Active, s.Sub)
}

// command is one Exec...= line and how it last ended.
type command struct {
	argv   []string
	code   string // as ExecMainCode
	status int
}

func (c command) failed() bool { return c.code != "" && (c.code != "exited" || c.status != 0) }

// commands reads a property of type a(sasbttttuii): path, argv, whether a failure is ignored, four times, pid, code,
// status.
func commands(props map[string]dbus.Variant, name string) []command {
	var list []command
	for _, fields := range get[[][]any](props, name) {
		if len(fields) != 10 {
			continue
		}
		var c command
		c.argv, _ = fields[1].([]string)
		ignored, _ := fields[2].(bool)
		code, _ := fields[8].(int32)
		status, _ := fields[9].(int32)
		if !ignored {
			c.code, c.status = exitWord(code), int(status)
		}
		list = append(list, c)
	}
	return list
}

// exitWord names a si_code of SIGCHLD, sigaction(2).
func exitWord(code int32) string {
	switch code {
	case 1:
		return "exited"
	case 2:
		return "killed"
	case 3:
		return "dumped"
	}
	return ""
}

// end says how a process ended.
func end(code string, status int) string {
	switch code {
	case "killed", "dumped":
		signal := unix.SignalName(syscall.Signal(status))
		if signal == "" {
			signal = "signal " + strconv.Itoa(status)
		}
		if code == "dumped" {
			signal += " and dumped core"
		}
		return "killed by " + signal
	}
	text := "exited with status " + strconv.Itoa(status)
	if name := ownStatus(status); name != "" {
		text += "/" + name
	}
	return text
}

// ownStatus names the exit statuses that systemd itself uses when it cannot set up or run a command: systemd.exec(5),
// "Process Exit Codes". Those from 200 on that are missing belong to settings that no unit of ours has.
func ownStatus(status int) string {
	names := map[int]string{
		200: "CHDIR", 202: "FDS", 203: "EXEC", 204: "MEMORY", 205: "LIMITS", 206: "OOM_ADJUST", 207: "SIGNAL_MASK",
		208: "STDIN", 209: "STDOUT", 213: "SECUREBITS", 214: "SETSCHEDULER", 215: "CPUAFFINITY", 216: "GROUP",
		217: "USER", 218: "CAPABILITIES", 219: "CGROUP", 220: "SETSID", 222: "STDERR", 225: "NETWORK", 226: "NAMESPACE",
		227: "NO_NEW_PRIVILEGES", 228: "SECCOMP", 230: "PERSONALITY", 232: "ADDRESS_FAMILIES",
		233: "RUNTIME_DIRECTORY", 235: "CHOWN", 237: "KEYRING", 238: "STATE_DIRECTORY", 239: "CACHE_DIRECTORY",
		240: "LOGS_DIRECTORY", 242: "NUMA_POLICY", 243: "CREDENTIALS",
	}
	return names[status]
}
