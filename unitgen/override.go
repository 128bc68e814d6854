package unitgen

import (
	"fmt"
	"slices"
	"strings"
)

// Overrides says where a unit as systemd has it loaded, with its drop-ins, contradicts its section: argv is the command
// of ExecStart=, env its environment as NAME=value. Conflicts, the guard and the proof of readiness all go by the
// section, so such a unit must not start. What a drop-in does to other options is its administrator's business.
func (s Section) Overrides(argv, env []string) []string {
	var found []string
	differ := func(what, have, want string) {
		if have != want {
			found = append(found, fmt.Sprintf("%s is %s, the definition says %s", what, orNothing(have), orNothing(want)))
		}
	}
	i := slices.Index(argv, "serve")
	if i < 0 || i+1 >= len(argv) {
		return []string{"the command is not that of \"vllm serve\""}
	}
	differ("the model", argv[i+1], s.Model)
	options := argv[i+2:]
	differ("--served-model-name", strings.Join(optionValues(options, "served-model-name"), " "), strings.Join(s.Served, " "))
	port := ""
	if s.Port != 0 {
		port = fmt.Sprint(s.Port)
	}
	differ("--port", lastValue(options, "port"), port)
	differ("--host", lastValue(options, "host"), s.Host)
	differ("--uds", lastValue(options, "uds"), s.UDS)
	if s.UsesGPUs() {
		differ("CUDA_VISIBLE_DEVICES", lastOf(env, "CUDA_VISIBLE_DEVICES"), strings.Join(s.GPUs, ","))
	}
	return found
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// optionValues returns the values of vLLM's long option as its parser reads it: "--name A B", "--name=A", "_" for "-"
// (vllm/utils/argparse_utils.py). The last occurrence counts.
func optionValues(argv []string, name string) []string {
	var values []string
	for i, arg := range argv {
		flag, value, joined := strings.Cut(arg, "=")
		if !strings.HasPrefix(flag, "--") || strings.ReplaceAll(flag[2:], "_", "-") != name {
			continue
		}
		if values = nil; joined {
			values = []string{value}
			continue
		}
		for _, v := range argv[i+1:] {
			if strings.HasPrefix(v, "-") {
				break
			}
			values = append(values, v)
		}
	}
	return values
}

// lastValue is the value of an option that takes one, or "".
func lastValue(argv []string, name string) string {
	values := optionValues(argv, name)
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// lastOf is the value of a variable in an environment, where later assignments win, or "".
func lastOf(env []string, name string) string {
	for _, assignment := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(assignment, name+"="); ok {
			return value
		}
	}
	return ""
}
