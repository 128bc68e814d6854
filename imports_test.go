// Package vllmhost_test holds the source tree to its architecture.
package vllmhost_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A rule says what the code of a package, but for its tests, may import besides the standard library.
type rule struct {
	pkg    string
	ours   string // our packages
	libs   string // other modules' packages
	reason string
}

// leaf is what a package that looks after one resource of the host may import.
const leaf = "hostctl/proc"

var rules = []rule{
	{"conf", "", "github.com/BurntSushi/toml",
		"a profile is checked the same everywhere, also where there is no systemd"},
	{"unitgen", "conf", "github.com/coreos/go-systemd/v22/unit",
		"the same profile gives the same units: nothing of the host may play a part"},
	{"hostctl/systemd", "", "github.com/coreos/go-systemd/v22/dbus github.com/godbus/dbus/v5 golang.org/x/sys/unix",
		"one client, so that every wait for systemd has the same care"},
	{"hostctl/systemd/systemdtest", "", "github.com/coreos/go-systemd/v22/dbus github.com/godbus/dbus/v5",
		"it speaks the protocol of the client it tests"},
	{"hostctl/proc", "", "golang.org/x/sys/unix",
		"the one leaf that the others stand on"},
	{"hostctl/units", leaf, "golang.org/x/sys/unix github.com/google/renameio/v2",
		"a leaf looks after one resource and knows neither profile nor other leaves"},
	{"hostctl/ports", leaf, "golang.org/x/sys/unix", "a leaf, as above"},
	{"hostctl/shm", leaf, "golang.org/x/sys/unix", "a leaf, as above"},
	{"hostctl/gpu", leaf, "golang.org/x/sys/unix", "a leaf, as above"},
	{"hostctl/models", leaf, "golang.org/x/sys/unix github.com/google/renameio/v2", "a leaf, as above"},
	{"hostctl/probe", leaf, "", "a leaf, as above; a probe sees the engine as a client does"},
	{"hostctl/gate", "unitgen hostctl/systemd hostctl/proc hostctl/ports hostctl/shm hostctl/gpu hostctl/probe",
		"golang.org/x/sys/unix github.com/google/renameio/v2",
		"a start is judged by its unit alone: never by the profile, nor by an operation"},
	{"hostctl/swap", "conf unitgen hostctl/systemd hostctl/units hostctl/shm hostctl/ports hostctl/gpu hostctl/models hostctl/probe",
		"golang.org/x/sys/unix github.com/google/renameio/v2",
		"it uses the others' data types; what it asks of them are interfaces of its own"},
	{"hostctl", "conf unitgen hostctl/...", "golang.org/x/sys/unix github.com/google/renameio/v2 github.com/fsnotify/fsnotify",
		"it wires the packages below to this host"},
	{"cmd/vllmhost/term", "", "golang.org/x/term",
		"how things look does not depend on what they are"},
	{"cmd/vllmhost", "conf unitgen hostctl/... cmd/vllmhost/term",
		"github.com/spf13/cobra github.com/spf13/pflag github.com/systemd/slog-journal github.com/coreos/go-systemd/v22/daemon golang.org/x/sys/unix",
		"it turns a command line into calls of hostctl and the result into words"},
	{"cmd/vllmsim", "", "golang.org/x/sys/unix",
		"a simulation that shared code with the program would share its mistakes"},
	{"testhost", "testhost/fakegpu", "golang.org/x/sys/unix",
		"tests install the package as a user does, and look at the host from outside"},
	{"testhost/fakegpu", "", "golang.org/x/sys/unix", "a driver knows nothing of who uses it"},
	{"cmd/testhost", "testhost", "github.com/spf13/cobra golang.org/x/term golang.org/x/sys/unix",
		"the terminal's side of testhost, which knows as little of the program"},
	{"cmd/testhost/nvidia-smi", "testhost/fakegpu", "", "the command of that driver"},
}

// testLibs are what tests may import on top.
const testLibs = "github.com/google/go-cmp/cmp github.com/rogpeppe/go-internal/testscript github.com/rogpeppe/go-internal/txtar golang.org/x/sys/unix github.com/BurntSushi/toml"

// forTestsOnly are packages of ours that only tests import.
const forTestsOnly = "hostctl/systemd/systemdtest"

// pkg is what go list knows about a package.
type pkg struct {
	Dir, ImportPath                           string
	GoFiles                                   []string
	Imports, TestImports, XTestImports        []string
	IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-e", "-json", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, "vllmhost/")
		i := slices.IndexFunc(rules, func(r rule) bool { return r.pkg == name })
		if len(p.GoFiles) > 0 && i < 0 {
			t.Errorf("package %s has no rule; what may it import, and why?", name)
			continue
		}
		for _, path := range p.Imports {
			r := rules[i]
			mine, ours := strings.CutPrefix(path, "vllmhost/")
			if ours && (!allowed(r.ours, mine) || allowed(forTestsOnly, mine)) || library(path) && !allowed(r.libs, path) {
				t.Errorf("%s may not import %s: %s", name, path, r.reason)
			}
		}
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			if library(path) && !allowed(testLibs, path) && !(i >= 0 && allowed(rules[i].libs, path)) {
				t.Errorf("the tests of %s may not import %s", name, path)
			}
		}
	}
}

// allowed reports whether a list of packages, divided by blanks, has path in it. "a/..." stands for a and all below it.
func allowed(list, path string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(entry string) bool {
		above, ok := strings.CutSuffix(entry, "/...")
		return entry == path || ok && strings.HasPrefix(path+"/", above+"/")
	})
}

// library reports whether a package is neither ours nor the standard library's.
func library(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".")
}
