package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSettings(t *testing.T) {
	dir := t.TempDir()
	text := "# half the time it fails\nVLLMSIM_FAIL_AT=50\nLOAD_TIME=\"3s\"\n\nFAIL_TEXT=missing-shard\n"
	if err := os.WriteFile(filepath.Join(dir, settingsFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := loadSettings([]string{"PATH=/bin", "VLLMSIM_LOAD_TIME=1s", "VLLMSIM_TIME_SCALE=0.5", "VLLMSIM_LEAK_SHM=1"}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.FailAt != 50 || s.FailText != "missing-shard" || s.LoadTime != time.Second || !s.LeakShm {
		t.Errorf("settings %+v", s)
	}
	if got := s.scaled(s.LoadTime); got != 500*time.Millisecond {
		t.Errorf("scaled load time %v", got)
	}
	for _, bad := range []string{"VLLMSIM_NOPE=1", "VLLMSIM_LOAD_TIME=1", "VLLMSIM_DEVICE=tpu", "VLLMSIM_TIME_SCALE=-1", "VLLMSIM_ENGINE_DEATH=never"} {
		if _, err := loadSettings([]string{bad}, t.TempDir()); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// The package comment is the reference: every setting has its line there, in the words of the help.
func TestPackageCommentListsSettings(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	settingFlags(new(settings)).VisitAll(func(f *flag.Flag) {
		line := fmt.Sprintf("//\t%-24s %s\n", settingPrefix+f.Name, f.Usage)
		if !strings.Contains(string(source), line) {
			t.Errorf("the package comment has no line\n%s", line)
		}
	})
}

// Arguments and environment come out of the dump byte for byte.
func TestDump(t *testing.T) {
	hostile := []string{
		"", "--", "a b", `"quoted" 'twice'`, "$HOME ${HOME} %h %%", `{"mode":3,"x":["<&>"]}`, "line\nbreak\ttab\r", "\x01\x1b[31m\x7f",
		"ünïcödé 漢字 \U0001F600", "\\", `\x41`, strings.Repeat("x", 100_000), "-5", "=", " ", "\u2028",
	}
	dir := t.TempDir()
	args := append([]string{"serve", filepath.Join(dir, "no such\nmodel")}, hostile...)
	env := []string{"VLLMSIM_DUMP=${WHERE}/dump.json", "VLLMSIM_DUMP_ONLY=1", "WHERE=" + dir}
	for i, v := range hostile {
		env = append(env, fmt.Sprintf("H%d=%s", i, v))
	}
	s := prepare(t, nil, "unused")
	s.cmd.Args = append([]string{s.cmd.Path}, args...)
	s.cmd.Env = env
	if got := s.launch().status(); got != 0 {
		t.Fatalf("status %d", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "dump.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got dumped
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Argv, s.cmd.Args) {
		t.Errorf("argv %.300q\nwant %.300q", got.Argv, s.cmd.Args)
	}
	if !slices.Equal(got.Environ, env) {
		t.Errorf("environ %.300q\nwant %.300q", got.Environ, env)
	}
}

// Hostile values do not keep it from serving either: every flag it does not know is fine.
func TestServesWithHostileArguments(t *testing.T) {
	t.Parallel()
	s := ready(t, nil, "serve", "--speculative-config", `{"method":"eagle3","num_speculative_tokens":3}`, "--trust-remote-code", "--no-enable-prefix-caching",
		"--chat-template=-\n{{ '%' }}", "--lora-modules", "a=b", "c d", "--seed", "-1", "--compilation-config.mode", "3")
	s.saw(`'speculative_config': '{"method":"eagle3","num_speculative_tokens":3}', 'trust_remote_code': True, 'enable_prefix_caching': False, ` +
		`'chat_template': '-\n{{ \'%\' }}', 'lora_modules': ['a=b', 'c d'], 'seed': -1, 'compilation_config.mode': 3`)
}

func TestOptions(t *testing.T) {
	o, err := parseOptions(strings.Fields("/m --host ::1 --port=9000 --served_model_name a b --max-model-len 128K -tp 4 --shutdown-timeout 30 --api-key k1 k2 --uds /run/x --disable-log-stats"), "")
	if err != nil {
		t.Fatal(err)
	}
	if o.model != "/m" || o.host != "::1" || o.port != 9000 || !slices.Equal(o.served, []string{"a", "b"}) || o.maxModelLen != 131072 ||
		o.tp != 4 || o.drain != 30 || !slices.Equal(o.apiKeys, []string{"k1", "k2"}) || o.uds != "/run/x" || !o.noStats {
		t.Errorf("options %+v", o)
	}
	if o, _ := parseOptions([]string{"/m"}, ""); !slices.Equal(o.served, []string{"/m"}) || o.port != 8000 || o.host != "0.0.0.0" {
		t.Errorf("defaults %+v", o)
	}
	for _, bad := range []string{"--port x", "--port", "--gpu-memory-utilization lots", "--max-model-len 3x"} {
		if _, err := parseOptions(strings.Fields("/m "+bad), ""); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	_, err = parseOptions(strings.Fields("/m --enforce-eager --old_flag=3 --other 1"), "--old-flag,other")
	if want := "vllm: error: unrecognized arguments: --old_flag=3 --other 1"; err == nil || err.Error() != want {
		t.Errorf("rejected flags: %v, want %s", err, want)
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"VLLMSIM_VERSION=0.28.1"}, "--version")
	if s.status() != 0 {
		t.Error("--version fails")
	}
	s.saw("0.28.1\n")
	s = start(t, nil, "--help")
	if s.status() != 0 {
		t.Error("--help fails")
	}
	s.saw("VLLMSIM_LOAD_TIME")
	s = start(t, nil, "surf")
	if got := s.status(); got != 2 {
		t.Errorf("unknown command: status %d, want 2", got)
	}
}
