//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vllmhost/testhost"
)

// benchRuns is how often each way of swapping is timed, in turn.
const benchRuns = 30

// TestSwapCost times a swap of an engine that loads in no time against the same done by hand: systemctl stop, systemctl
// start, curl. Both use the same units, with what stands before and after a start. It says how long it takes from the
// moment an engine answers until its unit is active, too. It is a benchmark that needs a host: make bench.
func TestSwapCost(t *testing.T) {
	if !*timed {
		t.Skip("a benchmark: make bench")
	}
	h := boot(t, testhost.Options{Release: testhost.Trixie, Payload: payload, Models: []testhost.Model{
		{Name: "a", Shards: 2, Bytes: 1 << 20, Sim: "VLLMSIM_LOAD_TIME=0s\nVLLMSIM_LISTEN_DELAY=0s\n"}, {Name: "b", Shards: 2, Bytes: 1 << 20, Sim: "VLLMSIM_LOAD_TIME=0s\nVLLMSIM_LISTEN_DELAY=0s\n"},
	}})
	write(t, h, "/etc/vllmhost/host.toml", `schema = 1
[host]
gpus = 0
[engine.sim]
command = "/opt/vllm/bin/vllm"
[model.a]
path = "/srv/models/a"
[model.b]
path = "/srv/models/b"
[instance.a]
model = "a"
engine = "sim"
port = 8000
[instance.b]
model = "b"
engine = "sim"
port = 8000
`)
	write(t, h, "/root/bench", fmt.Sprintf(benchScript, benchRuns))
	out, err := h.Check(t.Context(), "bash", "/root/bench")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	took := map[string][]time.Duration{}
	for line := range strings.Lines(out) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		us, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("cannot read %q", line)
		}
		took[name] = append(took[name], time.Duration(us*float64(time.Microsecond)))
	}
	swap, hand := quantile(took["swap"], 0.5), quantile(took["hand"], 0.5)
	t.Logf("swap    median %v (%d runs)", swap, len(took["swap"]))
	t.Logf("by hand median %v (%d runs), systemctl stop + systemctl start + curl", hand, len(took["hand"]))
	t.Logf("added   median %v, %.2f times by hand", swap-hand, float64(swap)/float64(hand))
	silent := quantile(took["swap-silent"], 0.5)
	t.Logf("silent  median %v during a swap, %v by hand, %v added: from the stop until a token was answered", silent, hand, silent-hand)
	t.Logf("ready   p50 %v, p99 %v after the engine answers (%d starts), its first token not counted",
		quantile(took["lag"], 0.5), quantile(took["lag"], 0.99), len(took["lag"]))
	if len(took["swap"]) != benchRuns || len(took["hand"]) != benchRuns || len(took["lag"]) == 0 {
		t.Errorf("not all was timed:\n%s", out)
	}
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(100 * time.Microsecond)
}

// benchScript prints lines "WHAT MICROSECONDS". A poll every 5 ms says how long nothing answered.
const benchScript = `
vllmhost apply >/dev/null
vllmhost swap a >/dev/null
us() { echo $(($(date +%%s%%N) / 1000)); }
here=a; there=b
for i in $(seq %[1]d); do
	sleep 0.3 # what the one way leaves to be done is not the other's
	began=$(us)
	vllmhost swap $there >/dev/null || exit 1
	echo swap $(($(us) - began))
	vllmhost history $(vllmhost history | awk '$4 == "swap" { print $1; exit }') --json | sed -n 's/.*"silent_seconds": \([0-9.]*\).*/\1/p' | awk '{ print "swap-silent", $1 * 1e6 }'
	x=$here; here=$there; there=$x
	sleep 0.3
	began=$(us)
	systemctl stop vllm-$here.service
	systemctl start vllm-$there.service || exit 1
	curl --silent --fail --output /dev/null http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' -d '{"model": "'$there'", "prompt": "hi", "max_tokens": 1}' || exit 1
	took=$(($(us) - began))
	echo hand $took
	x=$here; here=$there; there=$x
done
# From the last word of an engine that loads for a while to its unit's "ready", less what its first token took.
for u in a b; do sed -i s/LOAD_TIME=.*/LOAD_TIME=700ms/ /srv/models/$u/sim.env; done
for i in $(seq %[1]d); do
	vllmhost swap $there >/dev/null || exit 1
	journalctl --output=short-unix --invocation=0 --unit=vllm-$there.service 2>/dev/null | awk '
		/Application startup complete/ { up = $1 }
		/GET \/v1\/models/ && !asked { asked = $1 }
		/POST \/v1\/completions/ && !answered { answered = $1 }
		/ready after .* a token after/ { printf "lag %%.0f\n", (asked - up + $1 - answered) * 1e6; exit }'
	x=$here; here=$there; there=$x
done
`
