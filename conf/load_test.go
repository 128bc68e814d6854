package conf

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files and the generated pages anew")

// golden compares a text with a file, or writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test ./conf -update writes it anew):\n%s", name, diff)
	}
}

// Each testdata/invalid/NAME.toml, with the layers in NAME.d, has exactly the problems of NAME.want.
func TestInvalid(t *testing.T) {
	profiles, err := filepath.Glob("testdata/invalid/*.toml")
	if err != nil || len(profiles) < 50 {
		t.Fatalf("%d profiles, %v", len(profiles), err)
	}
	host := secretsHost(t)
	for _, name := range profiles {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".toml"), func(t *testing.T) {
			p, diags := load(name, host)
			if (p == nil) != diags.HasErrors() {
				t.Errorf("profile %v although errors = %v", p, diags.HasErrors())
			}
			if len(diags) == 0 {
				t.Error("no problems")
			}
			checkPlaces(t, diags)
			golden(t, strings.TrimSuffix(name, ".toml")+".want", diags.String()+diags.Summary()+"\n")
		})
	}
}

// Each testdata/valid/*.toml has no problems at all.
func TestValid(t *testing.T) {
	profiles, err := filepath.Glob("testdata/valid/*.toml")
	if err != nil || len(profiles) == 0 {
		t.Fatalf("%d profiles, %v", len(profiles), err)
	}
	host := secretsHost(t)
	for _, name := range profiles {
		p, diags := load(name, host)
		if p == nil || len(diags) > 0 {
			t.Errorf("%s:\n%s", name, diags)
		}
	}
}

// checkPlaces checks that each diagnostic with a line points into its file.
func checkPlaces(t *testing.T, diags Diagnostics) {
	t.Helper()
	for _, d := range diags {
		if d.Message == "" || d.File == "" {
			t.Errorf("empty: %+v", d)
		}
		if d.Line == 0 {
			continue
		}
		data, err := os.ReadFile(d.File)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n")
		if d.Line > len(lines) || strings.TrimSuffix(lines[d.Line-1], "\r") != d.Source {
			t.Errorf("line %d is not %q: %s", d.Line, d.Source, d)
			continue
		}
		if n := len([]rune(d.Source)); d.Column < 1 || d.Column > n+1 || d.Length < 1 || d.Column+d.Length > n+2 {
			t.Errorf("column %d, length %d of %d: %s", d.Column, d.Length, n, d)
		}
	}
}

// secretsHost makes files with secrets, right and wrong ones, below a directory that stands for "/".
func secretsHost(t *testing.T) files {
	t.Helper()
	root := t.TempDir()
	secrets := filepath.Join(root, "etc/vllmhost/secrets")
	if err := os.MkdirAll(filepath.Join(secrets, "open"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{root, root + "/etc", root + "/etc/vllmhost"} {
		chmod(t, dir, 0o755)
	}
	for _, f := range []struct {
		name string
		mode os.FileMode
		text string
	}{
		{"good.env", 0o600, "# the key\nVLLM_API_KEY=\"sk-123\"\nHF_TOKEN='hf_abc' # CUDA_VISIBLE_DEVICES=0\n"},
		{"hf-token", 0o400, "hf_abc\n"},
		{"kimi.env", 0o600, "VLLM_API_KEY=sk-123\n"},
		{"readable.env", 0o644, ""},
		{"group.env", 0o640, ""},
		{"writable.env", 0o620, ""},
		{"open/kimi.env", 0o600, ""},
		{"binary.env", 0o600, "A=1\nB=\x00\n"},
		{"big.env", 0o600, strings.Repeat("A=1\n", maxEnvFile/4) + "B=1\n"},
		{"cuda.env", 0o600, "VLLM_API_KEY=sk-123\n\nCUDA_VISIBLE_DEVICES=3\n"},
		{"export.env", 0o600, "export VLLM_API_KEY=sk-123\n"},
		{"quoted.env", 0o600, "A='one\nPATH=/still/one\n' \nB=\"\\\"\nHOME=/still/b\"\\\n  CUDA_X=still b\n  PATH = /now\n"},
		{"many.env", 0o600, "PATH=1\nHOME=2\nPYTHONPATH=3\nVLLM_PORT=4\nUSER=5\n"},
		{"preload.env", 0o600, "LD_PRELOAD=/opt/evil.so\n"},
		{"comments.env", 0o600, "; PATH=1 \\\nPATH=2\n"},
		{"nonsense.env", 0o600, "sk-123\nMY KEY=1\n"},
	} {
		name := filepath.Join(secrets, f.name)
		if err := os.WriteFile(name, []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
		chmod(t, name, f.mode)
	}
	for link, target := range map[string]string{
		"link-to-open.env": "open/kimi.env",
		"link-to-good.env": "/etc/../etc/vllmhost/secrets/../secrets/good.env",
		"loop.env":         "loop.env",
	} {
		if err := os.Symlink(target, filepath.Join(secrets, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(secrets, "fifo.env"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(secrets, "dir.env"), 0o700); err != nil {
		t.Fatal(err)
	}
	chmod(t, filepath.Join(secrets, "open"), 0o777)
	chmod(t, secrets, 0o700)
	return files{root: root, owner: uint32(os.Getuid())}
}

func chmod(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}
