package gate

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
)

var update = flag.Bool("update", false, "write the expected phases anew")

// stamp is the time in a line of vLLM's.
var stamp = regexp.MustCompile(`(\d\d-\d\d \d\d:\d\d:\d\d) \[`)

// Real logs, shortened, and what status would have said at each line that says something new.
func TestPhasesOfRealLogs(t *testing.T) {
	logs, err := filepath.Glob("testdata/*.log")
	if err != nil || len(logs) == 0 {
		t.Fatal("no logs in testdata")
	}
	for _, path := range logs {
		t.Run(filepath.Base(path), func(t *testing.T) {
			got := phases(t, path)
			golden := strings.TrimSuffix(path, ".log") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func phases(t *testing.T, path string) string {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var l load
	var b strings.Builder
	var now time.Time
	n := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		n++
		if found := stamp.FindStringSubmatch(lines.Text()); found != nil {
			now, _ = time.Parse("01-02 15:04:05", found[1])
		}
		if l.line(lines.Text(), now) {
			fmt.Fprintf(&b, "%4d  %s\n", n, l.text(now))
		}
	}
	if gib, known := l.kvCache(); known {
		fmt.Fprintf(&b, "KV cache %.2f GiB\n", gib)
	}
	if gib, known := l.weights(); known {
		fmt.Fprintf(&b, "weights %.2f GiB\n", gib)
	}
	return b.String()
}

func TestTimeLeft(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var l load
	for _, tt := range []struct {
		after time.Duration
		done  int
		want  string
	}{
		{0, 0, "loading weights 0 % (0 of 100 shards)"},
		{time.Second, 1, "loading weights 1 % (1 of 100 shards)"},
		{2 * time.Second, 2, "loading weights 2 % (2 of 100 shards)"}, // too early to say
		{4 * time.Second, 4, "loading weights 4 % (4 of 100 shards), about 1m40s left"},
		{50 * time.Second, 50, "loading weights 50 % (50 of 100 shards), about 50s left"},
		{100 * time.Second, 100, "loading weights 100 % (100 of 100 shards)"},
	} {
		now := began.Add(tt.after)
		l.line(fmt.Sprintf("Loading safetensors checkpoint shards: %3d%% Completed | %d/100 [00:00<00:00]", tt.done, tt.done), now)
		if got := l.text(now); got != tt.want {
			t.Errorf("after %s: %q, want %q", tt.after, got, tt.want)
		}
	}
}

func TestProgressBars(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"Loading pt checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.2s/it]", "loading weights 50 % (1 of 2 shards)"},
		{"Multi-thread loading shards:  25% Completed | 1/4 [00:01<00:01]", "loading weights 25 % (1 of 4 shards)"},
		{"(Worker_TP0 pid=7) \rLoading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]\r" +
			"Loading safetensors checkpoint shards:  75% Completed | 3/4 [00:00<00:00, 9it/s]\r", "loading weights 75 % (3 of 4 shards)"},
		{"Capturing CUDA graphs (FULL):  10%|▉         | 5/51 [00:00<00:01, 42.31it/s]", "capturing graphs 10 %"},
	} {
		var l load
		if !l.line(tt.line, time.Time{}) || l.text(time.Time{}) != tt.want {
			t.Errorf("%q: %q, want %q", tt.line, l.text(time.Time{}), tt.want)
		}
	}
}

// The log is the engine's, and an engine runs what a model brings along.
func FuzzPhase(f *testing.F) {
	f.Add("Loading safetensors checkpoint shards: 999% Completed | 9999999/1 [x]")
	f.Add("Capturing CUDA graphs: 100%")
	f.Add("Available KV cache memory: ....GiB\nModel loading took 1e999 GiB")
	f.Fuzz(func(t *testing.T, log string) {
		var l load
		now := time.Unix(0, 0)
		for line := range strings.SplitSeq(log, "\n") {
			l.line(line, now)
			now = now.Add(4 * time.Second)
			text := l.text(now)
			if len(text) > 120 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%q makes %q", log, text)
			}
		}
	})
}
