package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vllmhost/cmd/vllmhost/term"
)

// tree returns all commands of the program.
func tree() *cobra.Command {
	return newRootCommand(&app{ui: term.Plain(io.Discard, io.Discard)})
}

// TestHelpIsComplete holds every command to what a reader of its help may expect.
func TestHelpIsComplete(t *testing.T) {
	eachCommand(tree(), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		if cmd.Short == "" || !unicode.IsUpper(rune(cmd.Short[0])) || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: Short %q is no phrase with a capital and without a full stop", path, cmd.Short)
		}
		if !strings.HasSuffix(cmd.Long, ".") {
			t.Errorf("%s: Long %q does not end with a full stop", path, cmd.Long)
		}
		for line := range strings.Lines(helpText(cmd)) {
			if strings.Contains(line, "\t") {
				t.Errorf("%s: a tab in the help: %q", path, line)
			}
		}
		if cmd.Example == "" {
			t.Errorf("%s: no example", path)
		}
		if cmd.Annotations[exitKey] == "" {
			t.Errorf("%s: no exit status; set Annotations: exits(...)", path)
		}
		if cmd.RunE == nil {
			t.Errorf("%s: no RunE", path)
		}
		if cmd.Parent() == cmd.Root() && cmd.GroupID == "" && !cmd.Hidden && cmd.Name() != "version" {
			t.Errorf("%s: no GroupID", path)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			if usage == "" || unicode.IsUpper(rune(usage[0])) && !unicode.IsUpper(rune(usage[1])) ||
				strings.HasSuffix(usage, ".") {
				t.Errorf("%s: the description %q of --%s is no lower-case phrase", path, usage, f.Name)
			}
		})
	})
}

// TestExamples parses every example, so that none shows a flag or an argument that does not exist.
func TestExamples(t *testing.T) {
	eachCommand(tree(), func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			if !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: the example %q is not indented by two blanks", cmd.CommandPath(), line)
			}
			words := strings.Fields(line)
			if len(words) == 0 || words[0] != "vllmhost" {
				continue // another program of the story
			}
			for i, word := range words {
				if word == ">" || word == "|" || word == "#" {
					words = words[:i]
					break
				}
			}
			about, args, err := tree().Find(words[1:])
			if err == nil {
				err = about.ParseFlags(args)
			}
			if err == nil {
				err = about.ValidateArgs(about.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: the example %q is wrong: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
			}
		}
	})
}

func TestCheckArgs(t *testing.T) {
	for _, test := range []struct {
		use, args string
		want      string // beginning of the error
	}{
		{"run", "", ""},
		{"run", "a", `run does not take the argument "a"`},
		{"run NAME", "", "run needs an argument: NAME"},
		{"run NAME", "a", ""},
		{"run NAME", "a b", `run does not take the argument "b"`},
		{"run NAME...", "", "run needs an argument: NAME"},
		{"run NAME...", "a b c", ""},
		{"run [NAME]", "", ""},
		{"run [NAME]", "a", ""},
		{"run [NAME]", "a b", `run does not take the argument "b"`},
		{"run [NAME...]", "", ""},
		{"run [NAME...]", "a b", ""},
		{"run FROM [TO]", "a", ""},
		{"run FROM [TO]", "a b c", `run does not take the argument "c"`},
	} {
		got := ""
		if err := checkArgs(&cobra.Command{Use: test.use}, strings.Fields(test.args)); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s, given %q: %q, want %q", test.use, test.args, got, test.want)
		}
	}
}

// TestExitCodes writes the numbers down a second time: scripts out there rely on them.
func TestExitCodes(t *testing.T) {
	want := map[exit]int{
		exitDone: 0, exitFailed: 1, exitChanged: 2, exitRolledBack: 3, exitRollbackFailed: 4, exitLocked: 5, exitSlow: 6,
		exitUsage: 64, exitProfile: 78, exitNotActive: 3, exitNoInstance: 4,
		exitDetached: 130, exitAgain: 75,
	}
	if len(want) != exitCount {
		t.Fatalf("%d exits, %d in this test", exitCount, len(want))
	}
	for e, want := range want {
		if code, meaning := exitTable(e); code != want || meaning == "" {
			t.Errorf("exit %d has code %d and meaning %q, want code %d", e, code, meaning, want)
		}
	}
}

// TestReport ends commands in every way.
func TestReport(t *testing.T) {
	for _, test := range []struct {
		err    error
		code   int
		stderr string
	}{
		{nil, 0, ""},
		{io.EOF, 1, "vllmhost: error: EOF\n"},
		{end(exitDone), 0, ""},
		{end(exitNotActive), 3, ""},
		{fail(exitLocked, io.EOF, "vllmhost swap --attach"), 5, "vllmhost: error: EOF\n  hint: vllmhost swap --attach\n"},
		{fmt.Errorf("in front: %w", fail(exitLocked, io.EOF)), 5, "vllmhost: error: in front: EOF\n"},
	} {
		var stdout, stderr strings.Builder
		code := report(term.Plain(&stdout, &stderr), nil, test.err)
		if code != test.code || stderr.String() != test.stderr || stdout.Len() > 0 {
			t.Errorf("report(%v) = %d, %q; want %d, %q; stdout %q", test.err, code, &stderr, test.code, test.stderr, &stdout)
		}
	}
}
