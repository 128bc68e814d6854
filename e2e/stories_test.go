//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"vllmhost/testhost"
)

// A suite is a kind of host that stories run on.
type suite struct {
	name    string
	release testhost.Release
	cgroups testhost.Cgroups
	always  bool // also for stories that do not ask for all suites
}

var suites = [...]suite{
	{"bookworm", testhost.Bookworm, testhost.Unified, true},
	{"trixie", testhost.Trixie, testhost.Unified, true},
	{"bookworm-hybrid", testhost.Bookworm, testhost.Hybrid, false},
	{"trixie-hybrid", testhost.Trixie, testhost.Hybrid, false},
}

// suitesLine is how a story asks for the suites that are not always run.
var suitesLine = regexp.MustCompile(`(?m)^# suites: all$`)

func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories in testdata: %v", err)
	}
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			testscript.Run(t, testscript.Params{
				Files:               s.choose(t, files),
				Setup:               s.setup,
				Cmds:                commands(),
				Condition:           s.condition,
				RequireExplicitExec: true,
				RequireUniqueNames:  true,
			})
		})
	}
}

// choose returns the stories of a suite.
func (s suite) choose(t *testing.T, files []string) []string {
	var chosen []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if s.always || suitesLine.Match(text) {
			chosen = append(chosen, file)
		}
	}
	return chosen
}

// setup gives a story its suite; the story boots its host when it wants.
func (s suite) setup(env *testscript.Env) error {
	st := &story{suite: s, failed: env.T().(interface{ Failed() bool }).Failed, log: func(text string) { env.T().Log(text) }}
	env.Values[storyKey{}] = st
	env.Defer(st.end)
	return nil
}

// condition answers [bookworm], [trixie], [unified] and [hybrid].
func (s suite) condition(name string) (bool, error) {
	switch name {
	case "bookworm", "trixie":
		return name == string(s.release), nil
	case "unified", "hybrid":
		return name == s.cgroups.String(), nil
	}
	return false, fmt.Errorf("unknown condition; known: bookworm, trixie, unified, hybrid")
}

// TestStoriesAreTold keeps the list in README.md complete.
func TestStoriesAreTold(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range commands() {
		if !strings.Contains(string(readme), "`"+name) {
			t.Errorf("README.md does not describe the command %q", name)
		}
	}
}
