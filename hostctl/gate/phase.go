package gate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// phase is how far an engine's load is.
type phase int

// The phases of a load, in vLLM's order. A CPU engine has fewer; an eager one compiles and captures nothing.
const (
	importing phase = iota
	startingEngine
	loadingModel
	loadingWeights
	compiling
	sizingCache
	capturing
	warmingUp
	startingServer
)

// text is a phase in words.
func (p phase) text() string {
	return [...]string{importing: "importing", startingEngine: "starting the engine", loadingModel: "loading the model",
		loadingWeights: "loading weights", compiling: "compiling", sizingCache: "sizing the KV cache",
		capturing: "capturing graphs", warmingUp: "warming up", startingServer: "starting the server"}[p]
}

// busy reports whether the processors may be all that moves in a phase, for minutes.
func (p phase) busy() bool {
	switch p {
	case importing, startingEngine, compiling, capturing, warmingUp:
		return true
	}
	return false
}

// marks are the beginnings of log lines that begin a phase (vLLM 0.25 on GPUs and 0.32 on CPUs; earlier and later ones
// share most of them). A line of a phase that is over changes nothing.
var marks = [...]struct {
	begins string
	phase  phase
}{
	{"non-default args:", importing},
	{"Resolved architecture:", importing},
	{"Initializing a V1 LLM engine", startingEngine},
	{"Starting to load model", loadingModel},
	{"Loading model from scratch", loadingModel},
	{"Loading weights took", loadingModel},
	{"Model loading took", compiling},
	{"Using cache directory:", compiling},
	{"Dynamo bytecode transform time", compiling},
	{"Directly load the compiled graph", compiling},
	{"Compiling a graph", compiling},
	{"Initial profiling/warmup run took", sizingCache},
	{"Available KV cache memory:", sizingCache},
	{"GPU KV cache size:", sizingCache},
	{"CPU KV cache size:", sizingCache},
	{"Graph capturing finished", warmingUp},
	{"init engine (profile", startingServer},
	{"Supported tasks:", startingServer},
	{"Starting vLLM server on", startingServer},
	{"Application startup complete", startingServer},
}

var (
	// shards is a progress bar over files: "Loading safetensors checkpoint shards:  42% Completed | 50/119 [00:10<00:14]".
	shards = regexp.MustCompile(`^(?:Loading|Multi-thread loading|Prefetching) [\w ]*(?:shards|files)[^:]*: +(\d{1,3})%(?: Completed)? *\|[^|]*?(\d{1,7})/(\d{1,7})\b`)
	// graphs is one over graphs: "Capturing CUDA graphs (FULL):  10%|█         | 5/51".
	graphs = regexp.MustCompile(`^Capturing CUDA graphs[^:]*: +(\d{1,3})%`)
	// sizes in GiB.
	cacheSize  = regexp.MustCompile(`^Available KV cache memory: ([\d.]{1,12}) GiB`)
	weightSize = regexp.MustCompile(`^Model loading took ([\d.]{1,12}) GiB`)
)

// load reads an engine's log line by line and knows how far the engine is. The zero value is an engine that has said
// nothing yet.
type load struct {
	now         phase
	percent     int // of the phase, or 0
	done, total int // files
	first       int // files that were done when the first was told
	since       time.Time
	cache, size float64 // GiB
}

// line takes one line of the log, and reports whether it says something new.
func (l *load) line(text string, at time.Time) (news bool) {
	// A progress bar draws itself again and again in one line; what it says last counts.
	text = strings.TrimRight(text, "\r ")
	text = text[strings.LastIndexByte(text, '\r')+1:]
	text = strings.TrimSpace(plain(strings.TrimSpace(text)))
	if found := shards.FindStringSubmatch(text); found != nil {
		return l.files(atoi(found[1]), atoi(found[2]), atoi(found[3]), at)
	}
	if found := graphs.FindStringSubmatch(text); found != nil {
		return l.enter(capturing, atoi(found[1]))
	}
	if found := cacheSize.FindStringSubmatch(text); found != nil {
		l.cache, _ = strconv.ParseFloat(found[1], 64)
	}
	if found := weightSize.FindStringSubmatch(text); found != nil {
		l.size, _ = strconv.ParseFloat(found[1], 64)
	}
	for _, m := range marks {
		if strings.HasPrefix(text, m.begins) {
			return l.enter(m.phase, 0)
		}
	}
	return false
}

// enter begins a phase, or goes on in it. Phases never go back, but for two things: graphs are captured in several rounds
// of 100 percent, and a speculative model's weights are loaded after the other's.
func (l *load) enter(p phase, percent int) bool {
	if p < l.now || p == l.now && percent == l.percent {
		return false
	}
	l.now, l.percent = p, min(percent, 100)
	return true
}

// files is the state of a progress bar over files.
func (l *load) files(percent, done, total int, at time.Time) bool {
	if l.now > loadingWeights && l.now != compiling {
		return false
	}
	if l.now != loadingWeights || total != l.total || done < l.done {
		l.now, l.total, l.first, l.since = loadingWeights, total, done, at
	} else if done == l.done && percent == l.percent {
		return false
	}
	l.percent, l.done = min(percent, 100), done
	return true
}

func (l *load) phase() phase { return l.now }

// text says for people how far the load is: "loading weights 58 % (37 of 64 shards), about 2m10s left".
func (l *load) text(now time.Time) string {
	text := l.now.text()
	switch l.now {
	case loadingWeights:
		text = fmt.Sprintf("%s %d %% (%d of %d shards)", text, l.percent, l.done, l.total)
		if left := l.left(now); left > 0 {
			text += fmt.Sprintf(", about %s left", left)
		}
	case capturing:
		text = fmt.Sprintf("%s %d %%", text, l.percent)
	}
	return text
}

// left estimates the time for the rest of the weights, from the rate since their first line; 0 as long as that says
// little.
func (l *load) left(now time.Time) time.Duration {
	const fewFiles, shortTime = 2, 3 * time.Second
	came, took := l.done-l.first, now.Sub(l.since)
	if came < fewFiles || took < shortTime || l.done >= l.total {
		return 0
	}
	left := took / time.Duration(came) * time.Duration(l.total-l.done)
	const long = time.Minute
	if left > long {
		return left.Round(10 * time.Second)
	}
	return left.Round(time.Second)
}

// kvCache is the size of the KV cache on each GPU in GiB, once the log says it.
func (l *load) kvCache() (gib float64, known bool) { return l.cache, l.cache > 0 }

// weights is the size of the weights on each GPU in GiB, once the log says it.
func (l *load) weights() (gib float64, known bool) { return l.size, l.size > 0 }

// atoi reads a number that a regular expression found.
func atoi(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
