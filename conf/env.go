package conf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

var envName = lazily(`^[A-Za-z_][A-Za-z0-9_]*$`)

// reserved says why neither env nor an env_file may set a variable, or returns "". The unit decides these, and an
// EnvironmentFile= wins over it (systemd.exec(5)): an instance could run on other GPUs than its profile says.
func reserved(name string) (why string) {
	switch name {
	case "CUDA_HOME", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING":
		return ""
	case "PATH":
		return "the engine's path decides it"
	case "HOME", "USER", "LOGNAME", "SHELL":
		return "the instance's user decides it"
	case "VLLM_PORT":
		return "it is not the port of the API, which is the key port"
	case "VLLM_ENGINE_READY_TIMEOUT_S":
		return "start_timeout decides it"
	case "NOTIFY_SOCKET", "MAINPID", "INVOCATION_ID", "JOURNAL_STREAM", "CREDENTIALS_DIRECTORY", "RUNTIME_DIRECTORY",
		"STATE_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY":
		return "systemd sets it"
	}
	for _, r := range []struct{ prefix, why string }{
		{"CUDA_", "the key gpus decides which GPUs are used"},
		{"PYTHON", "it changes the programs that the engine's command runs"},
		{"LISTEN_", "systemd sets it"},
		{"WATCHDOG_", "systemd sets it"},
	} {
		if strings.HasPrefix(name, r.prefix) {
			return r.why
		}
	}
	return ""
}

// secret reports whether a variable is by its name a secret.
func secret(name string) bool {
	name = strings.ToUpper(name)
	for _, end := range []string{"TOKEN", "KEY", "SECRET", "PASSWORD"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// checkEnv checks the env of an engine or an instance.
func (t table) checkEnv(env map[string]string) {
	n := t.n.child("env")
	if n == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		item := n.child(name)
		here := t.at.key("env").key(name)
		message, hint := "", ""
		switch {
		case !envName().MatchString(name):
			message, hint = fmt.Sprintf("%s cannot name an environment variable", quote(name)),
				"letters, digits and _, not beginning with a digit"
		case secret(name):
			message, hint = fmt.Sprintf("%s looks like a secret, and everybody can read env", quote(name)),
				"set it in env_file of the instance"
		case reserved(name) != "":
			message, hint = fmt.Sprintf("env may not set %s", quote(name)), reserved(name)
		}
		if message != "" {
			item.bad = true
			t.l.on(item.src, item.key, here, message, hint)
			continue
		}
		if f := textFault(env[name]); f != nil {
			t.l.wrongValue(item, here, f)
		}
	}
}
