//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vllmhost/testhost"
)

// Settings of the torture, from the environment: how many swaps are killed in all, and what decides how. TORTURE_FROM
// goes on at that run of a seed.
const (
	runsVariable = "TORTURE_RUNS"
	seedVariable = "TORTURE_SEED"
	fromVariable = "TORTURE_FROM"
)

// few is how many swaps are killed where nobody asks for more.
const few = 60

func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestTorture kills swaps at random instants: the process that carries them out, the command that follows them, both, or
// the whole host. Whatever it was, afterwards exactly one instance serves, the one the record says; it is the one that
// starts at boot; and nothing is half done.
func TestTorture(t *testing.T) {
	runs, from := setting(t, runsVariable, few), setting(t, fromVariable, 0)
	seed := setting(t, seedVariable, uint64(time.Now().UnixNano()))
	t.Logf("%s=%d %s=%d", seedVariable, seed, runsVariable, runs)
	var tally tally
	t.Run("hosts", func(t *testing.T) {
		hosts := []testhost.Options{
			{Release: testhost.Bookworm}, {Release: testhost.Trixie},
			{Release: testhost.Bookworm, Cgroups: testhost.Hybrid}, {Release: testhost.Trixie, Cgroups: testhost.Unified},
		}
		for n, opts := range hosts {
			opts.Payload = payload
			opts.Models = []testhost.Model{{Name: "a", Shards: 2, Bytes: 1 << 20}, {Name: "b", Shards: 2, Bytes: 1 << 20}}
			t.Run(fmt.Sprintf("%d-%s", n, opts.Release), func(t *testing.T) {
				t.Parallel()
				v := &victim{T: t, host: boot(t, opts), serves: "a"}
				v.prepare()
				for i := from + uint64(n); i < runs; i += uint64(len(hosts)) {
					began := time.Now()
					kill, what, outcome := v.run(rand.New(rand.NewPCG(seed, i)), i)
					tally.add(kill, what, outcome, time.Since(began))
				}
			})
		}
	})
	t.Log("\n" + tally.String())
}

// victim is a host whose swaps are killed.
type victim struct {
	*testing.T
	host       *testhost.Host
	serves     string
	last       string // the newest swap in its history
	definition int    // makes each definition another one
}

func (v *victim) sh(script string) string {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), 2*time.Minute)
	defer cancel()
	out, err := v.host.Check(ctx, "bash", "-c", script)
	if err != nil {
		v.Fatalf("%v\n%s", err, out)
	}
	return out
}

func (v *victim) prepare() {
	v.sh(`useradd --system --no-create-home vllm-static; for m in a b; do echo VLLMSIM_LOAD_TIME=200ms > /srv/models/$m/sim.env; done`)
	write(v.T, v.host, "/root/check", checkScript)
	v.define("a", "")
	v.define("b", "")
	v.sh("vllmhost apply && vllmhost swap a")
	v.last = v.settled("at the beginning")["id"]
}

// define writes another definition of an instance. Instance a shares the host's /dev/shm, b has its own.
func (v *victim) define(name, env string) {
	v.definition++
	text := fmt.Sprintf("[instance.%s]\nmodel = %q\nengine = \"sim\"\nport = 8000\nenv = { DEFINITION = \"%d\"%s }\n", name, name, v.definition, env)
	if name == "a" {
		text += "shm = \"host\"\nuser = \"vllm-static\"\n"
		write(v.T, v.host, "/etc/vllmhost/host.toml", "schema = 1\n[host]\ngpus = 0\n[engine.sim]\ncommand = \"/opt/vllm/bin/vllm\"\n"+
			"[model.a]\npath = \"/srv/models/a\"\n[model.b]\npath = \"/srv/models/b\"\n")
	}
	v.sh("mkdir -p /etc/vllmhost/host.d")
	write(v.T, v.host, "/etc/vllmhost/host.d/"+name+".toml", text)
}

// Ways to kill, and what to kill.
var (
	kills = []string{"worker", "client", "both", "host"}
	whats = []string{"swap", "swap that fails", "new definition", "new definition that fails"}
)

// span is longer than an undisturbed swap takes, so that some kills come just after its end.
const span = 1600 * time.Millisecond

// run kills one swap, and checks what became of it.
func (v *victim) run(random *rand.Rand, i uint64) (kill, what, outcome string) {
	v.Helper()
	kill, what = kills[random.IntN(len(kills))], whats[random.IntN(len(whats))]
	target := map[string]string{"a": "b", "b": "a"}[v.serves]
	if strings.HasPrefix(what, "new") {
		target = v.serves
	}
	env := ""
	if strings.HasSuffix(what, "fails") {
		env = `, VLLMSIM_FAIL_AT = "50"`
	}
	v.define(target, env)
	after := time.Duration(random.Int64N(int64(span)))
	again := time.Duration(random.Int64N(int64(300 * time.Millisecond))) // after the first kill of a worker, one time in three
	at := fmt.Sprintf("%s=.. run %d: %s to %s, %s killed after %s", seedVariable, i, what, target, kill, after)

	script := fmt.Sprintf("vllmhost apply >/dev/null && { setsid vllmhost swap %s >/root/client 2>&1 & client=$!; sleep %.3f; ", target, after.Seconds())
	if kill == "client" || kill == "both" {
		script += "kill -KILL $client; "
	}
	if kill == "worker" || kill == "both" {
		const killWorker = "systemctl kill --signal=KILL 'vllmhost-operation@*' 2>/dev/null; "
		script += killWorker
		if random.IntN(3) == 0 {
			script += fmt.Sprintf("sleep %.3f; ", again.Seconds()) + killWorker
		}
	}
	if kill == "worker" {
		script += "wait $client; "
	}
	v.sh(script + "true; }")
	if kill == "host" {
		ctx, cancel := context.WithTimeout(v.Context(), time.Minute)
		defer cancel()
		if err := v.host.PowerCut(ctx); err != nil {
			v.Fatalf("%s: %v", at, err)
		}
	}
	before := v.serves
	got := v.settled(at)
	outcome, v.serves = got["state"], got["serving"]
	if got["id"] == v.last {
		outcome = "never begun"
	}
	v.last = got["id"]
	defer func() {
		if got["resumed"] != "" {
			outcome += ", taken up again"
		}
	}()
	want := before
	if outcome == "swapped" {
		want = target
	}
	for name, value := range map[string]string{"serving": want, "answers": want, "boots": want, "open": "0", "drift": "0", "left": "0", "stale": "0"} {
		if got[name] != value {
			v.Fatalf("%s: ended %q; %s is %q, want %q\n%v\n%s", at, outcome, name, got[name], value, got, v.sh("vllmhost history; cat /root/client; cat /var/lib/vllmhost/operations/*.jsonl | tail -n 40 | cut -c1-400"))
		}
	}
	if strings.HasSuffix(what, "fails") && outcome == "swapped" {
		v.Fatalf("%s: swapped to what cannot start", at)
	}
	return kill, what, outcome
}

// settled waits until no operation goes on and one instance serves, and returns how things are then.
func (v *victim) settled(at string) map[string]string {
	v.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		out := v.sh("bash /root/check")
		got := map[string]string{}
		for _, field := range strings.Split(strings.TrimSpace(out), ";") {
			name, value, _ := strings.Cut(field, "=")
			got[name] = value
		}
		if got["open"] == "0" && got["serving"] != "" && !strings.Contains(got["serving"], "?") {
			return got
		}
		if time.Now().After(deadline) {
			v.Fatalf("%s: does not come to rest: %v\n%s", at, got, v.sh("vllmhost status; vllmhost history; cat /root/client; systemctl --no-pager status 'vllmhost-*'; true"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// checkScript says in one line how a host is.
const checkScript = `
cd /etc/systemd/system
open=$(($(vllmhost history --json | grep -c '"state": "at ') + $(systemctl list-units --plain --no-legend 'vllmhost-operation@*' | wc -l) + $(systemctl list-jobs --no-legend | grep -c vllmhost-operation@)))
id=$(vllmhost history | awk '$4 == "swap" { print $1; exit }')
serving=; boots=; drift=0
for i in a b; do
	case $(systemctl show --property=ActiveState --value vllm-$i.service) in
	active) serving=$serving$i ;;
	activating | deactivating) serving=$serving$i? ;;
	esac
	[ -L multi-user.target.wants/vllm-$i.service ] && boots=$boots$i
	[ "$(systemctl show --property=NeedDaemonReload --value vllm-$i.service)" = no ] || drift=$((drift + 1))
done
drift=$((drift + $(vllmhost status --json | grep -c 'drift": "[^"]')))
left=$(ls -A | grep -c -e '\.before$' -e '^\.vllm')
state=$(vllmhost history $id --json | sed -n '0,/"state"/s/.*"state": "\(.*\)".*/\1/p')
resumed=$(vllmhost history $id --json | sed -n 's/.*"resumed": \([0-9]*\).*/\1/p')
stale=$(vllmhost clean --json | grep -c '"stale": true')
answers=$(curl --silent --max-time 5 http://127.0.0.1:8000/v1/models | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
echo "id=$id;serving=$serving;answers=$answers;boots=$boots;drift=$drift;left=$left;open=$open;state=$state;stale=$stale;resumed=$resumed"
`

// tally counts what was killed, and how that ended.
type tally struct {
	mu    sync.Mutex
	count map[string]map[string]int
	total int
	spent time.Duration
}

func (c *tally) add(kill, what, outcome string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count = map[string]map[string]int{}
	}
	key := fmt.Sprintf("%-8s %-26s", kill, what)
	if c.count[key] == nil {
		c.count[key] = map[string]int{}
	}
	c.count[key][outcome]++
	c.total++
	c.spent += took
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(c.count)) {
		fmt.Fprintf(&b, "%s", key)
		for _, outcome := range slices.Sorted(maps.Keys(c.count[key])) {
			fmt.Fprintf(&b, " %4d %-29s", c.count[key][outcome], outcome)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%d in all, %s each", c.total, (c.spent / max(1, time.Duration(c.total))).Round(10*time.Millisecond))
	return b.String()
}
