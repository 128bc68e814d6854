package conf

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The smallest useful instance is three lines: model, engine, port. Everything else has a default.
func TestDefaults(t *testing.T) {
	p, diags := Load("testdata/valid/smallest.toml")
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	want := &Profile{
		Schema:  1,
		Host:    Host{GPUs: Auto, ModelDirs: []string{"/srv/models"}, Reserve: 50e9},
		Engines: map[string]*Engine{"stable": {Command: "/opt/vllm/bin/vllm"}},
		Models:  map[string]*Model{"kimi": {Path: "/srv/models/Kimi-K2.5", Revision: "main"}},
		Instances: map[string]*Instance{"kimi": {
			Model: "kimi", Engine: "stable", Port: 8000,
			Host: "0.0.0.0", ServedModelName: []string{"kimi"}, GPUs: GPUs{All: true},
			TensorParallelSize: 1, PipelineParallelSize: 1, DataParallelSize: 1,
			Group: "vllm", Shm: "private",
			DrainTimeout: Duration(30 * time.Second), StallTimeout: Duration(15 * time.Minute), StartTimeout: Duration(2 * time.Hour),
			ProtectHome: "yes",
			Probe:       Probe{MaxRegression: 0.1, FirstRequestTimeout: Duration(10 * time.Minute), Logprobs: "auto"},
		}},
		Files: []string{"testdata/valid/smallest.toml"},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDefaultsOfACPUHost(t *testing.T) {
	p, diags := Load("testdata/valid/cpu.toml")
	if p == nil {
		t.Fatal(diags)
	}
	if in := p.Instances["tiny"]; in.GPUs.Any() {
		t.Errorf("uses GPUs %v", in.GPUs)
	}
}

// Args keep the order of the profile, and values are what TOML says.
func TestArgs(t *testing.T) {
	p, diags := Load("testdata/valid/origin.toml")
	if p == nil {
		t.Fatal(diags)
	}
	want := Args{
		{"trust-remote-code", true},
		{"tool-call-parser", "kimi_k2"},
		{"max-model-len", int64(131072)},
		{"speculative-config", map[string]any{"method": "eagle3", "num_speculative_tokens": int64(3)}},
	}
	if diff := cmp.Diff(want, p.Instances["kimi-int4"].Args); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := (Args{{"max_model_len", int64(8)}}).Get("max-model-len"); got != int64(8) {
		t.Errorf("Get: %v", got)
	}
	bytes, diags := Load("testdata/valid/any-bytes.toml")
	if bytes == nil {
		t.Fatal(diags)
	}
	in := bytes.Instances["kimi"]
	wantAny := Args{
		{"chat-template", "{% for m in messages %}\"{{ m }}\"\n\t$ %% \\ {% endfor %}"},
		{"nested", map[string]any{"b": []any{int64(1), 2.5, "x", true, []any{}, map[string]any{}}, "a": map[string]any{"c": "€\x01\x1b"}}},
		{"lora-modules", []any{map[string]any{"name": "a", "path": "/srv/lora/a"}, map[string]any{"name": "b", "path": "/srv/lora/b"}}},
		{"allowed-origins", []any{"*", int64(1)}},
	}
	if diff := cmp.Diff(wantAny, in.Args); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if in.Description != "Kimi K2.5" || in.Port != 8080 || in.Env["GREETING"] != "naïve\nmulti\tline\a" {
		t.Errorf("got %+v", in)
	}
}

// Paths are written in their shortest form, and GPUs in order.
func TestNormalForms(t *testing.T) {
	p, diags := Load("testdata/valid/sharing.toml")
	if p == nil {
		t.Fatal(diags)
	}
	if got := p.Models["embed"].Path; got != "/data/models/embed" {
		t.Errorf("path %q", got)
	}
	if diff := cmp.Diff([]string{"/srv/models", "/data/models"}, p.Host.ModelDirs); diff != "" {
		t.Error(diff)
	}
	if got := p.Instances["embed"].GPUs.String(); got != "0-1" {
		t.Errorf("GPUs %s", got)
	}
	if got := p.Instances["apart"].GPUs.UUIDs[1]; got != "GPU-aaaaaaaa-2222-3333-4444-555555555555" {
		t.Errorf("UUID %s", got)
	}
}

// Later files win key by key, in name order; hidden files and other names are not read.
func TestLayers(t *testing.T) {
	dir := t.TempDir()
	profile := filepath.Join(dir, "host.toml")
	write(t, profile, "schema = 1\nengine.e = { command = '/opt/a', env = { A = '1', B = '1' } }\n"+
		"model.m.path = '/srv/models/m'\n[instance.i]\nmodel = 'm'\nengine = 'e'\nport = 8000\ngpus = [0, 1]\n"+
		"args = { a = 1, b = { x = 1, y = 1 } }\n")
	write(t, filepath.Join(dir, "host.d/20-b.toml"), "[instance.i]\nport = 8002\nargs.c = 3\n")
	write(t, filepath.Join(dir, "host.d/10-a.toml"), "[instance.i]\nport = 8001\ngpus = [5]\nargs.b.y = 2\n[engine.e.env]\nB = '2'\n")
	write(t, filepath.Join(dir, "host.d/.30.toml"), "port = 1\n")
	write(t, filepath.Join(dir, "host.d/40.toml.dpkg-old"), "port = 1\n")
	p, diags := Load(profile)
	if p == nil {
		t.Fatal(diags)
	}
	in := p.Instances["i"]
	if in.Port != 8002 || in.GPUs.String() != "5" {
		t.Errorf("port %d, GPUs %s", in.Port, in.GPUs)
	}
	wantArgs := Args{{"a", int64(1)}, {"b", map[string]any{"x": int64(1), "y": int64(2)}}, {"c", int64(3)}}
	if diff := cmp.Diff(wantArgs, in.Args); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"A": "1", "B": "2"}, p.Engines["e"].Env); diff != "" {
		t.Error(diff)
	}
	if got := strings.Join(p.Files, " "); got != strings.ReplaceAll("D/host.toml D/host.d/10-a.toml D/host.d/20-b.toml", "D", dir) {
		t.Errorf("files %s", got)
	}
}

// What is no readable text file of a sensible size is refused with one line that says why.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	name := func(s string) string { return filepath.Join(dir, s) }
	write(t, name("big.toml"), strings.Repeat("# ten MB\n", 10<<20/9))
	write(t, name("elf.toml"), "\x7fELF\x02\x01\x01\x00\x00\x00")
	write(t, name("utf16.toml"), "\xff\xfes\x00c\x00")
	write(t, name("secret.toml"), "schema = 1\n")
	chmod(t, name("secret.toml"), 0)
	write(t, name("layered.toml"), "schema = 1\n")
	write(t, name("layered.d"), "not a directory")
	write(t, name("fifo-layer.toml"), "schema = 1\n")
	if err := os.Mkdir(name("directory.toml"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, fifo := range []string{name("fifo.toml"), name("fifo-layer.d/10.toml")} {
		if err := os.MkdirAll(filepath.Dir(fifo), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(fifo, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, want string }{
		{"missing.toml", "D/missing.toml: error: cannot read the profile: no such file or directory\n" +
			"  hint: write one, or name another with --profile\n"},
		{"directory.toml", "D/directory.toml: error: cannot read the profile: it is a directory\n"},
		{"fifo.toml", "D/fifo.toml: error: cannot read the profile: it is a FIFO\n"},
		{"fifo-layer.toml", "D/fifo-layer.d/10.toml: error: cannot read the profile: it is a FIFO\n"},
		{"big.toml", "D/big.toml: error: cannot read the profile: it has 10485756 bytes, and the limit is 1MiB\n"},
		{"elf.toml", "D/elf.toml:1:8: error: not a text file: it holds a byte 0x00\n" +
			"    1 | \\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\n      |                    ^^^^ a profile is TOML in UTF-8\n"},
		{"utf16.toml", "D/utf16.toml:1:1: error: not a text file: it holds a byte 0xff\n" +
			"    1 | \\xff\\xfes\\x00c\\x00\n      | ^^^^ a profile is TOML in UTF-8\n"},
		{"layered.toml", "D/layered.d: error: cannot list the directory: not a directory\n"},
		{"secret.toml", "D/secret.toml: error: cannot read the profile: permission denied\n  hint: run as root\n"},
	} {
		if c.name == "secret.toml" && os.Getuid() == 0 {
			continue // root reads everything
		}
		p, diags := Load(name(c.name))
		if p != nil {
			t.Errorf("%s was loaded", c.name)
		}
		if diff := cmp.Diff(strings.ReplaceAll(c.want, "D/", dir+"/"), diags.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// Who owns a file with secrets, or a directory on the way to it, can replace it.
func TestSecretsOfOthers(t *testing.T) {
	host := secretsHost(t)
	const name = "/etc/vllmhost/secrets/good.env"
	if _, f := host.secretFault(name); f != nil {
		t.Fatal(f)
	}
	host.owner++
	if _, f := host.secretFault(name); f == nil || !strings.HasPrefix(f.message, "can be replaced by others than root: / belongs to user ") {
		t.Errorf("got %v", f)
	}
	host.owner--
	for _, part := range []string{"/etc/vllmhost/secrets", name} {
		somebody := host.owner + 1
		if err := os.Lchown(host.in(part), int(somebody), -1); err != nil {
			t.Skip("only root can give files away")
		}
		if _, f := host.secretFault(name); f == nil || f.message != fmt.Sprintf("can be replaced by others than root: %s belongs to user %d", part, somebody) {
			t.Errorf("%s: got %v", part, f)
		}
		if err := os.Lchown(host.in(part), int(host.owner), -1); err != nil {
			t.Fatal(err)
		}
	}
}

// Without the right to look at a file with secrets the profile can still be checked, with a warning.
func TestSecretsUnseen(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root sees everything")
	}
	host := secretsHost(t)
	profile := filepath.Join(t.TempDir(), "host.toml")
	text, err := os.ReadFile("testdata/valid/smallest.toml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, profile, string(text)+"env_file = '/etc/vllmhost/secrets/good.env'\n")
	for _, c := range []struct{ unseen, want string }{
		{"/etc/vllmhost/secrets", "was not checked: only root can see it"},
		{"/etc/vllmhost/secrets/good.env", "was not checked: only root can read it"},
	} {
		info, err := os.Stat(host.in(c.unseen))
		if err != nil {
			t.Fatal(err)
		}
		chmod(t, host.in(c.unseen), 0)
		p, diags := load(profile, host)
		chmod(t, host.in(c.unseen), info.Mode().Perm())
		if p == nil || len(diags) != 1 || diags[0].Severity != Warning || !strings.Contains(diags[0].Message, c.want) {
			t.Errorf("%s: %s", c.unseen, diags)
		}
	}
}

// As JSON a diagnostic is one flat object, whose names are a promise.
func TestDiagnosticJSON(t *testing.T) {
	_, diags := Load("testdata/invalid/unknown-engine.toml")
	got, err := json.Marshal(diags[0])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"severity":"error","file":"testdata/invalid/unknown-engine.d/50-minimax.toml","line":6,"column":10,"length":9,` +
		`"key":"instance.minimax.engine","message":"instance \"minimax\" uses engine \"nightli\", which is not defined",` +
		`"hint":"did you mean \"nightly\"? engines: nightly, stable"}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

// A hostile profile is answered soon, with a bounded number of problems.
func TestHostileSize(t *testing.T) {
	fill := func(s string) string { return strings.Repeat(s, (maxProfile-1000)/len(s)) }
	for name, text := range map[string]string{
		"open lists":   "a = " + fill("["),
		"lists":        "a = " + fill("[")[:maxProfile/2] + fill("]")[:maxProfile/2-10],
		"tables":       "a = " + fill("{a="),
		"dots":         fill("a.") + "a = 1",
		"headers":      "[" + fill("a.") + "a]",
		"spaces":       fill(" "),
		"lines":        fill("\n"),
		"quotes":       "a = " + fill(`"`),
		"one string":   `schema = "` + fill("x") + `"`,
		"one key":      fill("x") + " = 1",
		"items":        "host.model_dirs = [" + fill("1,") + "]",
		"one line":     "host = { " + numbered("k%d=1,") + " }",
		"unknown keys": numbered("k%d=1\n"),
	} {
		t.Run(name, func(t *testing.T) {
			profile := filepath.Join(t.TempDir(), "host.toml")
			write(t, profile, text)
			start := time.Now()
			_, diags := Load(profile)
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			} else {
				t.Logf("%v, %s", took, diags.Summary())
			}
			if len(diags) > maxProblems+1 || len(diags.String()) > (maxProblems+1)*2000 {
				t.Errorf("%d problems, %d bytes", len(diags), len(diags.String()))
			}
			checkPlaces(t, diags)
		})
	}
}

// numbered fills a text with one pattern and rising numbers.
func numbered(pattern string) string {
	var b strings.Builder
	for i := 0; b.Len() < maxProfile-1000; i++ {
		fmt.Fprintf(&b, pattern, i)
	}
	return b.String()
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
