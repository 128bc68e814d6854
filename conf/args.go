package conf

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Arg is one vLLM option: its long flag without dashes, and a value. Value is a string, bool, int64, float64,
// []any of these without bool (or of tables), or map[string]any (a table, passed on as JSON).
type Arg struct {
	Flag  string
	Value any
}

// Args holds vLLM options in the order of the profile.
type Args []Arg

// Get returns the value of an option, given as its long flag with dashes ("max-model-len"), or nil.
func (a Args) Get(flag string) any {
	for _, arg := range a {
		if plainFlag(arg.Flag) == flag {
			return arg.Value
		}
	}
	return nil
}

// UnmarshalTOML accepts a table and nothing else. The order of its keys comes from the file; see decodeArgs.
func (a *Args) UnmarshalTOML(value any) error {
	return wants("a table", value).hinted("such as { max-model-len = 8192, enforce-eager = true }")
}

// plainFlag is how vLLM compares flags: underscores are dashes.
func plainFlag(flag string) string { return strings.ReplaceAll(flag, "_", "-") }

var flagForm = lazily(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// longestArg is the most bytes of one argument that execve(2) takes (MAX_ARG_STRLEN, without the NUL).
const longestArg = 128<<10 - 1

// decodeArgs reads the args of an instance.
func (l *loader) decodeArgs(n *node, args *Args, at place) {
	seen := map[string]string{}
	for _, item := range n.items {
		here := at.key(item.name)
		flag := plainFlag(item.name)
		message, hint := argsKey(item.name)
		if other, ok := seen[flag]; ok && message == "" {
			message, hint = fmt.Sprintf("%s is the same option as %s", quote(item.name), quote(other)), "keep one"
		}
		seen[flag] = item.name
		if message != "" {
			l.on(item.src, item.key, here, message, hint)
			continue
		}
		value := item.plain()
		if f := argFault(value, false); f != nil {
			l.wrongValue(item, here, f)
			continue
		}
		*args = append(*args, Arg{Flag: item.name, Value: value})
	}
}

// argsKey says what is wrong with a key of args.
func argsKey(key string) (message, hint string) {
	if bare := strings.TrimLeft(key, "-"); bare != key {
		if _, hint := argsKey(bare); hint != "" {
			return fmt.Sprintf("%s begins with a dash", quote(key)), hint
		}
		return fmt.Sprintf("%s begins with a dash", quote(key)), fmt.Sprintf("write it without: %s", bare)
	}
	if !flagForm().MatchString(key) {
		return fmt.Sprintf("%s is no option of vLLM", quote(key)), "the name of a long option, without dashes"
	}
	flag, full := plainFlag(key), ""
	for _, f := range ownFlags() {
		for _, name := range strings.Fields(f.flags) {
			switch {
			case name == flag:
				return fmt.Sprintf("%s cannot stand in args", quote(key)), f.instead
			case len(flag) > 2 && strings.HasPrefix(name, flag):
				full = name // Python's argparse takes an unambiguous beginning for the whole
			}
		}
	}
	if full != "" {
		return fmt.Sprintf("%s may be read as %q, which cannot stand in args", quote(key), full), "write options in full"
	}
	return "", ""
}

// ownFlag is an option that vllmhost gives itself, or needs to know.
type ownFlag struct {
	flags   string // the long flag and its aliases
	instead string // what to write in its place
}

// ownFlags lists the options that may not stand in args (vllm serve --help).
func ownFlags() []ownFlag {
	key := func(name string) string { return fmt.Sprintf("it has a key of its own: %s", name) }
	return []ownFlag{
		{"port", key("port")},
		{"host", key("host")},
		{"uds", key("uds")},
		{"served-model-name", key("served_model_name")},
		{"tensor-parallel-size tp", key("tensor_parallel_size")},
		{"pipeline-parallel-size pp", key("pipeline_parallel_size")},
		{"data-parallel-size dp", key("data_parallel_size")},
		{"gpu-memory-utilization", key("gpu_memory_utilization")},
		{"device-ids", key("gpus")},
		{"ssl-certfile", key("ssl_certfile")},
		{"ssl-keyfile", key("ssl_keyfile")},
		{"ssl-ca-certs ssl-cert-reqs", "vllmhost itself has no client certificate to show"},
		{"shutdown-timeout", key("drain_timeout")},
		{"model model-tag", key("model")},
		{"revision", "it is a key of [model.NAME]"},
		{"api-key", "anybody can read arguments; set VLLM_API_KEY in env_file"},
		{"config", "write the keys of that file into args"},
		{"headless grpc", "without the HTTP API nothing can be proven"},
	}
}

// argFault says what keeps a value from being passed to vLLM. Inside a table it becomes JSON.
func argFault(value any, json bool) *fault {
	switch v := value.(type) {
	case string:
		return textFault(v)
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return faultf("is not a number that vLLM could use")
		}
	case time.Time:
		return wants("a string, a number, true or false, a list or a table", value).hinted("put it in quotes")
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if f := argFault(v[name], true); f != nil {
				return f
			}
		}
	case []any:
		if len(v) == 0 && !json {
			return faultf("is an empty list: the option would have no value")
		}
		for i, member := range v {
			f := argFault(member, json)
			if f == nil && !json {
				switch reflect.TypeOf(member).Kind() {
				case reflect.Bool:
					f = wants("strings, numbers or tables in its list", member).hinted("put it in quotes")
				case reflect.Slice:
					f = wants("strings, numbers or tables in its list", member)
				}
			}
			switch {
			case f != nil && json:
				return f
			case f != nil:
				return f.at(i)
			}
		}
	}
	return nil
}

// textFault says what keeps a text from being an argument or the value of an environment variable.
func textFault(text string) *fault {
	switch {
	case strings.ContainsRune(text, 0):
		return faultf("holds a NUL, which no program can be given")
	case len(text) > longestArg:
		return faultf("has %d bytes, and no program can be given more than %d at once", len(text), longestArg)
	}
	return nil
}
