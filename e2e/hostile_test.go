//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vllmhost/conf"
	"vllmhost/testhost"
	"vllmhost/unitgen"
)

var torture = flag.Bool("torture", false, "10,000 hostile command lines instead of 500")
var timed = flag.Bool("timed", false, "also what is timed on a host")

const batch = 50 // units that one host has at a time

// hostile is what one instance's profile asks for, and so what its engine must get.
type hostile struct {
	args []string
	env  []string // values of X0, X1, ...
}

// TestHostileArguments sends arguments and environments that a shell, a TOML file, a unit file or a specifier might
// mangle from a profile through conf, unitgen and a real systemd to the engine, which writes down what it got.
func TestHostileArguments(t *testing.T) {
	lists := 500
	if *torture {
		lists = 10_000
	}
	for _, release := range []testhost.Release{testhost.Bookworm, testhost.Trixie} {
		t.Run(string(release), func(t *testing.T) {
			t.Parallel()
			h := boot(t, testhost.Options{Release: release, Payload: payload})
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			// The engine alone matters here: no gates around it, and it ends once it has written.
			write(t, h, "/etc/systemd/system/vllm-.service.d/bare.conf", "[Service]\nType=oneshot\nRestart=no\n"+
				"ExecStartPre=\nExecStartPost=\nEnvironment=VLLMSIM_DUMP_ONLY=1\n"+
				"Environment=\"VLLMSIM_DUMP=${CACHE_DIRECTORY}/dump.json\"\n")
			for done := 0; done < lists; done += batch {
				hostileBatch(t, h, random, min(batch, lists-done))
			}
		})
	}
}

func write(t *testing.T, h *testhost.Host, name, text string) {
	t.Helper()
	if err := h.WriteFile(t.Context(), name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func hostileBatch(t *testing.T, h *testhost.Host, random *rand.Rand, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	wanted := map[string]hostile{}
	var profile strings.Builder
	profile.WriteString("schema = 1\n[host]\ngpus = 0\n[engine.sim]\ncommand = \"/opt/vllm/bin/vllm\"\n[model.m]\npath = \"/srv/models/m\"\n")
	for i := range n {
		name, list := fmt.Sprintf("i%d", i), newHostile(random, i)
		wanted[name] = list
		fmt.Fprintf(&profile, "[instance.%s]\nmodel = \"m\"\nengine = \"sim\"\nport = 8000\nargs = { hostile = %s }\nenv = { ", name, tomlList(list.args))
		for j, value := range list.env {
			if j > 0 {
				profile.WriteString(", ")
			}
			fmt.Fprintf(&profile, "X%d = %s", j, tomlString(value))
		}
		profile.WriteString(" }\n")
	}
	argv := []string{"systemctl", "start"}
	units := render(t, profile.String())
	for _, u := range units {
		argv = append(argv, u.Name)
	}
	install(ctx, t, h, units)
	for _, command := range [][]string{
		{"bash", "-c", "rm -f /var/cache/private/vllm/*/dump.json"},
		{"systemctl", "daemon-reload"},
		argv,
	} {
		if out, err := h.Check(ctx, command...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	out, err := h.Check(ctx, "bash", "-c", "cat /var/cache/private/vllm/*/dump.json")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, wanted, out)
}

// install puts units on the host, all at once.
func install(ctx context.Context, t *testing.T, h *testhost.Host, units []unitgen.Unit) {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, u := range units {
		if err := w.WriteHeader(&tar.Header{Name: u.Name, Mode: 0o644, Size: int64(len(u.Text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(u.Text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	res, err := h.RunInput(ctx, &archive, "tar", "--extract", "--no-same-owner", "--directory=/etc/systemd/system")
	if err != nil || res.Code != 0 {
		t.Fatalf("cannot install the units: %v\n%s", err, res.Stderr)
	}
}

// render turns a profile into units as apply does, in parts below the limit of a profile's size.
func render(t *testing.T, profile string) []unitgen.Unit {
	t.Helper()
	head, instances, _ := strings.Cut(profile, "[instance.")
	var units []unitgen.Unit
	for _, instance := range strings.Split(instances, "\n[instance.") {
		path := filepath.Join(t.TempDir(), "host.toml")
		if err := os.WriteFile(path, []byte(head+"[instance."+instance+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		p, problems := conf.Load(path)
		if problems.HasErrors() {
			t.Fatalf("the profile is wrong:\n%.2000v", problems)
		}
		units = append(units, unitgen.RenderAll(p)...)
	}
	return units
}

// compare reads what the engines wrote down.
func compare(t *testing.T, wanted map[string]hostile, dumps string) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(dumps))
	seen := 0
	for {
		var got struct {
			Argv, Environ []string
			Dir           string
		}
		if err := decoder.Decode(&got); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		want := wanted[filepath.Base(got.Dir)]
		at := slices.Index(got.Argv, "--hostile")
		if at < 0 || !slices.Equal(got.Argv[at+1:], want.args) {
			t.Errorf("arguments differ:\n got %.3000q\nwant %.3000q", got.Argv[at+1:], want.args)
		}
		for j, value := range want.env {
			if entry := fmt.Sprintf("X%d=%s", j, value); !slices.Contains(got.Environ, entry) {
				t.Errorf("the environment lacks %.3000q", entry)
			}
		}
	}
	if seen != len(wanted) {
		t.Errorf("%d engines wrote down what they got, want %d", seen, len(wanted))
	}
}

// nasty are pieces that something on the way might take for its own.
var nasty = [...]string{
	`"`, `'`, `\`, `\\`, `$`, `$$`, `$HOME`, `${HOME}`, `${X0}`, `$(id)`, "`id`", `%`, `%%`, `%n`, `%h`, `%i`, `100%`,
	`{"a": [1, "b"], "c": {"d": null}}`, "\n", "\r\n", "\t", "\x01", "\x1b[31m", "\x7f", ";", " ; ", "#", "# x", "[Service]",
	"\nExecStart=/bin/false\n", "\\\n", `\n`, `\x41`, `\u0041`, "=", ":", "@", "+", "!", "-", "*", "?", "~", "~root", "é", "模型", "🦙",
	"\u00a0", "\u2028", "\u202e", "\ufeff", "\ufffd", " ", "  ", "a", "Z", "0", "/", "..", ",", "|", "&", "<", ">", "(", ")", "{}", "[]",
}

func newHostile(random *rand.Rand, i int) hostile {
	var list hostile
	for range 1 + random.IntN(42) {
		list.args = append(list.args, "v"+nastyText(random, random.IntN(12)))
	}
	// Pieces alone, and nothing at all, with nothing before them to hide behind.
	list.args = append(list.args, nasty[random.IntN(len(nasty))], "")
	for range 1 + random.IntN(10) {
		list.env = append(list.env, nastyText(random, random.IntN(12)))
	}
	switch i % batch {
	case 0: // near the kernel's limit for one argument (MAX_ARG_STRLEN, 128 KiB)
		list.args = append(list.args, strings.Repeat("k", 100_000))
	case 1:
		list.args = append(list.args, strings.Repeat(`%"\$é`, 16_000))
	}
	return list
}

func nastyText(random *rand.Rand, pieces int) string {
	var b strings.Builder
	for range pieces {
		b.WriteString(nasty[random.IntN(len(nasty))])
	}
	return b.String()
}

func tomlList(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = tomlString(v)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// tomlString writes a basic string with every character but plain ASCII escaped.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r >= ' ' && r < 0x7f && r != '"' && r != '\\' {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, `\U%08X`, r)
	}
	b.WriteByte('"')
	return b.String()
}
