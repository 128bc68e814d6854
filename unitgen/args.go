package unitgen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"sort"
	"strconv"
	"strings"
	"time"

	"vllmhost/conf"
)

// serveArgs returns the arguments of the engine's command: what the typed keys say, then the profile's own args.
// The options are vLLM's own (vllm serve --help).
func (j job) serveArgs() []string {
	in := j.instance
	args := []string{"serve", j.model.Path}
	add := func(flag string, values ...string) {
		args = append(args, "--"+flag)
		args = append(args, values...)
	}
	add("served-model-name", in.ServedModelName...)
	if in.UDS != "" {
		add("uds", in.UDS)
	} else {
		add("host", in.Host)
		add("port", strconv.Itoa(int(in.Port)))
	}
	if in.SSLCertfile != "" {
		add("ssl-certfile", in.SSLCertfile)
		add("ssl-keyfile", in.SSLKeyfile)
	}
	for _, size := range []struct {
		flag string
		n    int
	}{
		{"tensor-parallel-size", in.TensorParallelSize},
		{"pipeline-parallel-size", in.PipelineParallelSize},
		{"data-parallel-size", in.DataParallelSize},
	} {
		if size.n > 1 {
			add(size.flag, strconv.Itoa(size.n))
		}
	}
	if in.GPUMemoryUtilization > 0 {
		add("gpu-memory-utilization", number(in.GPUMemoryUtilization))
	}
	// Never 0: a stop with open streams then hangs or cuts them, depending on the version.
	add("shutdown-timeout", strconv.Itoa(int(time.Duration(in.DrainTimeout).Round(time.Second)/time.Second)))
	for _, a := range in.Args {
		args = append(args, option(a)...)
	}
	return args
}

// option writes one of the profile's args as vLLM's command line has it.
func option(a conf.Arg) []string {
	flag := "--" + a.Flag
	switch v := a.Value.(type) {
	case bool:
		if !v {
			flag = "--no-" + a.Flag
		}
		return []string{flag}
	case []any:
		words := []string{flag}
		for _, item := range v {
			words = append(words, argText(item))
		}
		return words
	default:
		text := argText(v)
		if strings.HasPrefix(text, "-") {
			return []string{flag + "=" + text} // else it would be read as an option
		}
		return []string{flag, text}
	}
}

// argText writes a single value: tables as compact JSON with sorted keys.
func argText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return number(v)
	case map[string]any, []any:
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			panic(fmt.Sprintf("internal error: a profile value without JSON: %v", err))
		}
		return strings.TrimSuffix(b.String(), "\n")
	default:
		panic(fmt.Sprintf("internal error: no way to write a %T", v))
	}
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// environment writes what the engine's processes find in their environment. Later lines win over earlier ones
// (systemd.exec(5), Environment=), so the profile's own come last.
func (j job) environment(w *writer) {
	set := func(name, value string) { w.set("Environment", Quote(name+"="+value)) }
	w.blank()
	w.why("Helper programs (ninja, nvcc) come from the engine's own installation first.")
	dirs := append([]string{path.Dir(j.engine.Command)}, j.engine.Path...)
	set("PATH", strings.Join(append(dirs, systemPath), ":"))
	set("HOME", cacheRoot+j.cache())
	set("PYTHONUNBUFFERED", "1")
	set("NO_COLOR", "1")
	w.why("Nothing is downloaded or reported at a start: the model is on disk, complete.")
	set("HF_HUB_OFFLINE", "1")
	set("TRANSFORMERS_OFFLINE", "1")
	set("VLLM_NO_USAGE_STATS", "1")
	set("VLLM_ENGINE_READY_TIMEOUT_S", strconv.Itoa(int(time.Duration(j.instance.StartTimeout)/time.Second)))
	if j.gpu {
		set("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
		if ids := j.gpuIDs(); len(ids) > 0 {
			set("CUDA_VISIBLE_DEVICES", strings.Join(ids, ","))
		}
	}
	for _, env := range []map[string]string{j.engine.Env, j.instance.Env} {
		for _, name := range sortedKeys(env) {
			set(name, env[name])
		}
	}
	if j.instance.EnvFile != "" {
		w.set("EnvironmentFile", specifierSafe(j.instance.EnvFile))
	}
}

func (j job) gpuIDs() []string {
	ids := append([]string(nil), j.instance.GPUs.UUIDs...)
	for _, i := range j.instance.GPUs.Indices {
		ids = append(ids, strconv.Itoa(i))
	}
	return ids
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// section returns what the [X-Vllmhost] section says of the instance.
func (j job) section() Section {
	in := j.instance
	s := Section{
		Format: SectionFormat, Instance: j.name,
		ModelName: in.Model, Model: j.model.Path, Repo: j.model.Repo,
		Engine: in.Engine, Command: j.engine.Command,
		Port: int(in.Port), UDS: in.UDS, TLS: in.SSLCertfile != "",
		Served: in.ServedModelName, EnvFile: in.EnvFile,
		AllGPUs: in.GPUs.All, GPUs: j.gpuIDs(), ShareGPUs: in.ShareGPUs, GPUUtilization: in.GPUMemoryUtilization,
		User: j.user(), Dynamic: in.User == "", Shm: string(in.Shm),
		DrainTimeout: time.Duration(in.DrainTimeout), StallTimeout: time.Duration(in.StallTimeout),
		StartTimeout: time.Duration(in.StartTimeout),
		MinSingleTPS: in.Probe.MinSingleTPS, MinLoadTPS: in.Probe.MinLoadTPS,
		MaxRegression: float64(in.Probe.MaxRegression), RequireLoad: in.Probe.RequireLoad,
		FirstRequestTimeout: time.Duration(in.Probe.FirstRequestTimeout), Logprobs: string(in.Probe.Logprobs),
		Allow: sortedKeys(in.Allow),
	}
	if in.UDS == "" {
		s.Host = in.Host
	}
	if j.gpu && j.profile.Host.GPUs > 0 {
		s.GPUCount = int(j.profile.Host.GPUs)
	}
	return s
}
