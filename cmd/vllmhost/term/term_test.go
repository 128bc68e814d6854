package term

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// screen is a Printer that writes both streams into one buffer, as a terminal shows them.
func screen(tty, unicode bool) (*Printer, *bytes.Buffer) {
	var shown bytes.Buffer
	s := stream{w: &shown, tty: tty, colour: tty, unicode: unicode, width: func() int { return 60 }}
	return &Printer{out: s, err: s}, &shown
}

// golden compares what was shown with testdata/NAME.golden. Escape sequences are spelled out there, one line of the file
// a line of output, so that a person can read it.
func golden(t *testing.T, name, shown string) {
	t.Helper()
	shown = strings.NewReplacer("\x1b", "<esc>", "\r", "<cr>").Replace(shown)
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(shown), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), shown); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// onEachScreen runs the test on a colour terminal, on one that has no UTF-8, and into a file.
func onEachScreen(t *testing.T, name string, test func(*testing.T, *Printer)) {
	for _, kind := range []struct {
		name         string
		tty, unicode bool
	}{{"tty", true, true}, {"tty-ascii", true, false}, {"file", false, false}} {
		t.Run(kind.name, func(t *testing.T) {
			p, shown := screen(kind.tty, kind.unicode)
			test(t, p)
			golden(t, name+"-"+kind.name, shown.String())
		})
	}
}

func TestLines(t *testing.T) {
	onEachScreen(t, "lines", func(t *testing.T, p *Printer) {
		p.Line("%s serves on port %d", "minimax", 8000)
		p.Line("the process is called %s", "evil\x1b[2J\nvllmhost: all is well")
		p.Text("- old\n+ new\twith a tab, \x1b[31mand no colour\n")
		p.Table(
			[]string{"INSTANCE", "STATE", "PORT", "BOOT"},
			[][]string{
				{"kimi-int4", "serving", "8000", "yes"},
				{"模型", "model incomplete (2 of 119)", "8001"},
				{"e\u0301", "stopped", "-", "-"},
			})
		p.Warn("%q shares port 8000", "embed")
		p.Error(errors.New("cannot swap: another swap is at step \"start\"\u202e"), 5, "vllmhost swap --attach", "or wait")
		p.Note("minimax still serves on port 8000.")
		p.NoteText("  model     shard missing\n            hint: vllmhost models fetch kimi\x1b")
	})
}

func TestJSON(t *testing.T) {
	p, shown := screen(true, true)
	p.JSONOnly = true
	p.Line("not shown")
	p.Text("not shown")
	p.Table([]string{"NOT"}, [][]string{{"shown"}})
	steps := p.Steps("not shown")
	steps.Start("stop", epoch)
	steps.Done("not shown", epoch)
	steps.Close()
	err := p.JSON(struct {
		Schema string `json:"schema"`
		Swap   string `json:"swap"`
		Hidden string `json:"hidden"`
	}{"vllmhost/test/v1", "minimax -> kimi & <b>", "csi \u009b2J, bidi \u202e, tag \U000e0041, esc \x1b, bad \xff"})
	if err != nil {
		t.Fatal(err)
	}
	p.Error(errors.New("cannot swap: x < y"), 1)
	golden(t, "json", shown.String())

	if err := p.JSON(func() {}); err == nil {
		t.Error("JSON accepted a function")
	}
}

// TestFailed shows that lost output is noticed, and that a reader who stops reading is not an error.
func TestFailed(t *testing.T) {
	for _, test := range []struct{ err, want error }{
		{nil, nil},
		{syscall.EPIPE, nil},
		{&os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, nil},
		{syscall.ENOSPC, syscall.ENOSPC},
	} {
		p, _ := screen(false, false)
		p.out.w = failing{test.err}
		p.Line("hello")
		if got := p.Failed(); got != test.want {
			t.Errorf("after a write that ended with %v: Failed() = %v, want %v", test.err, got, test.want)
		}
	}
}

type failing struct{ err error }

func (f failing) Write(b []byte) (int, error) { return len(b), f.err }

func TestUTF8Locale(t *testing.T) {
	for _, test := range []struct {
		environment string
		want        bool
	}{
		{"", false},
		{"LANG=C", false},
		{"LANG=C.UTF-8", true},
		{"LANG=en_US.utf8", true},
		{"LC_ALL=C LANG=en_US.UTF-8", false},
		{"LC_ALL= LC_CTYPE=de_DE.UTF-8 LANG=C", true},
		{"LANG=de_DE.ISO-8859-1", false},
	} {
		getenv := func(name string) string {
			for _, pair := range strings.Fields(test.environment) {
				if value, ok := strings.CutPrefix(pair, name+"="); ok {
					return value
				}
			}
			return ""
		}
		if got := utf8Locale(getenv); got != test.want {
			t.Errorf("utf8Locale(%s) = %v, want %v", test.environment, got, test.want)
		}
	}
}

// TestPipe has New look at real files: a pipe gets neither colour nor symbols, whatever the environment promises.
func TestPipe(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := New(write, write, func(name string) string {
		return map[string]string{"TERM": "xterm-256color", "LANG": "C.UTF-8"}[name]
	})
	p.Error(errors.New("cannot swap"), 1)
	steps := p.Steps("not here")
	steps.Start("stop", epoch)
	steps.Fail("no", epoch)
	steps.Close()
	write.Close()
	got, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	const want = "vllmhost: error: cannot swap\n  FAIL stop        0.0s   no\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}
