package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// options is what "vllm serve" was asked for, as far as the simulation acts on it.
type options struct {
	model       string
	host        string
	port        int
	uds         string
	served      []string
	tp, pp      int
	maxNumSeqs  int
	maxModelLen int // 0 when not given
	gpuShare    string
	drain       int // seconds
	certfile    string
	keyfile     string
	apiKeys     []string
	noStats     bool
	countLoad   bool
	noAccessLog bool
	quietPaths  []string
	nonDefault  string // as the Python dictionary the log shows
}

// option is one flag as it stood on the command line.
type option struct {
	name   string // without dashes, "_" turned into "-"
	values []string
	words  []string // as typed
}

// usageError ends the program the way argparse does: exit 2.
type usageError struct {
	prog string
	text string
}

func (e usageError) Error() string { return e.prog + ": error: " + e.text }

func (e usageError) print() ending {
	usage := "usage: vllm serve [model_tag] [options]"
	if e.prog == "vllm" {
		usage = "usage: vllm [-h] [-v]\n            {serve}\n            ..."
	}
	fmt.Fprintf(os.Stderr, "%s\n%v\n", usage, e)
	return ending{code: 2}
}

// modelArgument finds MODEL in "vllm serve MODEL ..." before anything else is understood.
func modelArgument(argv []string) string {
	if len(argv) > 2 && argv[1] == "serve" && !strings.HasPrefix(argv[2], "-") {
		return argv[2]
	}
	return ""
}

// splitOptions cuts the words after "serve" into the model and its flags. Which flags take values is not known, so every
// word up to the next flag is a value; a word is a flag when it begins with "-" and is not a negative number, which is
// argparse's rule as well.
func splitOptions(words []string) (model string, opts []option) {
	isFlag := func(w string) bool {
		if len(w) < 2 || w[0] != '-' {
			return false
		}
		_, err := strconv.ParseFloat(w, 64)
		return err != nil
	}
	if len(words) > 0 && !isFlag(words[0]) {
		model, words = words[0], words[1:]
	}
	for len(words) > 0 {
		o := option{words: words[:1]}
		name, value, joined := strings.Cut(words[0], "=")
		o.name = strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-")
		n := 1
		if joined {
			o.values = []string{value}
		} else {
			for n < len(words) && !isFlag(words[n]) {
				n++
			}
			o.values = words[1:n]
		}
		o.words = words[:n]
		opts = append(opts, o)
		words = words[n:]
	}
	return model, opts
}

// parseOptions reads the words after "serve". It returns a usageError for what argparse would refuse.
func parseOptions(words []string, reject string) (*options, error) {
	o := &options{model: "Qwen/Qwen3-0.6B", host: "0.0.0.0", port: 8000, tp: 1, pp: 1, maxNumSeqs: 256, gpuShare: "0.92"}
	model, opts := splitOptions(words)
	var unknown []string
	shown := newPyDict()
	if model != "" {
		o.model = model
		shown.set("model_tag", model)
	}
	rejected := strings.FieldsFunc(reject, func(r rune) bool { return r == ' ' || r == ',' })
	for _, opt := range opts {
		for _, r := range rejected {
			if strings.TrimLeft(r, "-") == opt.name {
				unknown = append(unknown, opt.words...)
			}
		}
	}
	for _, opt := range opts {
		if err := o.set(opt); err != nil {
			return nil, err
		}
		shown.setValues(strings.ReplaceAll(opt.name, "-", "_"), opt.values)
	}
	if len(unknown) > 0 {
		return nil, usageError{prog: "vllm", text: "unrecognized arguments: " + strings.Join(unknown, " ")}
	}
	shown.set("model", o.model)
	o.nonDefault = shown.String()
	if len(o.served) == 0 {
		o.served = []string{o.model}
	}
	return o, nil
}

// set acts on one flag. Flags it does not know are accepted in silence: the real one knows more than 300.
func (o *options) set(opt option) error {
	last := ""
	if len(opt.values) > 0 {
		last = opt.values[len(opt.values)-1]
	}
	number := func(dst *int) error {
		n, err := humanInt(last)
		if err != nil {
			return usageError{prog: "vllm serve", text: fmt.Sprintf("argument %s: invalid int value: '%s'", opt.words[0], last)}
		}
		*dst = n
		return nil
	}
	switch opt.name {
	case "model":
		o.model = last
	case "host":
		o.host = last
	case "port":
		return number(&o.port)
	case "uds":
		o.uds = last
	case "served-model-name":
		o.served = opt.values
	case "tensor-parallel-size", "tp":
		return number(&o.tp)
	case "pipeline-parallel-size", "pp":
		return number(&o.pp)
	case "max-num-seqs":
		return number(&o.maxNumSeqs)
	case "max-model-len":
		return number(&o.maxModelLen)
	case "gpu-memory-utilization":
		if _, err := strconv.ParseFloat(last, 64); err != nil {
			return usageError{prog: "vllm serve", text: fmt.Sprintf("argument --gpu-memory-utilization: invalid float value: '%s'", last)}
		}
		o.gpuShare = last
	case "shutdown-timeout":
		return number(&o.drain)
	case "ssl-certfile":
		o.certfile = last
	case "ssl-keyfile":
		o.keyfile = last
	case "api-key":
		o.apiKeys = opt.values
	case "disable-log-stats":
		o.noStats = true
	case "enable-server-load-tracking":
		o.countLoad = true
	case "disable-uvicorn-access-log":
		o.noAccessLog = true
	case "disable-access-log-for-endpoints":
		o.quietPaths = strings.Split(last, ",")
	}
	return nil
}

// humanInt reads 4096, 128k (thousands), 128K (1024s), -1.
func humanInt(s string) (int, error) {
	factor := 1.0
	if s != "" {
		if f, ok := map[byte]float64{'k': 1e3, 'K': 1 << 10, 'm': 1e6, 'M': 1 << 20, 'g': 1e9, 'G': 1 << 30}[s[len(s)-1]]; ok {
			factor, s = f, s[:len(s)-1]
		}
	}
	if factor == 1 {
		return strconv.Atoi(s)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f*factor) > math.MaxInt32 {
		return 0, fmt.Errorf("not a number: %q", s)
	}
	return int(f * factor), nil
}

// pyDict is printed like a Python dictionary, in the order of first assignment.
type pyDict struct {
	keys   []string
	values map[string]string
}

func newPyDict() *pyDict { return &pyDict{values: map[string]string{}} }

func (d *pyDict) setRaw(key, value string) {
	if _, ok := d.values[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[key] = value
}

func (d *pyDict) set(key, value string) { d.setRaw(key, pyString(value)) }

func (d *pyDict) setValues(key string, values []string) {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = pyString(v)
	}
	switch {
	case key == "served_model_name":
		d.setRaw(key, "["+strings.Join(quoted, ", ")+"]")
	case len(values) == 0:
		d.setRaw(strings.TrimPrefix(key, "no_"), map[bool]string{true: "False", false: "True"}[strings.HasPrefix(key, "no_")])
	case len(values) == 1:
		if _, err := strconv.ParseFloat(values[0], 64); err == nil {
			quoted[0] = values[0]
		}
		d.setRaw(key, quoted[0])
	default:
		d.setRaw(key, "["+strings.Join(quoted, ", ")+"]")
	}
}

func (d *pyDict) String() string {
	var b strings.Builder
	for i, k := range d.keys {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(pyString(k) + ": " + d.values[k])
	}
	return "{" + b.String() + "}"
}

// pyString quotes s for one line of a log, close to Python's repr.
func pyString(s string) string {
	quoted := strconv.Quote(s)
	return "'" + strings.NewReplacer(`\"`, `"`, "'", `\'`).Replace(quoted[1:len(quoted)-1]) + "'"
}
