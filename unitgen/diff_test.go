package unitgen

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSame(t *testing.T) {
	const base = "[Unit]\nDescription=a model\n[Service]\nEnvironment=A=1\nEnvironment=B=2\nExecStart=:/bin/vllm serve /m \\\n    --port 8000\n"
	for _, tt := range []struct {
		name, old, new string
		want           bool
	}{
		{"itself", "", "", true},
		{"another description", "a model", "the model", true},
		{"a comment", "[Service]", "# why\n[Service]\n; because", true},
		{"layout", " \\\n    --port", "   --port", true},
		{"quotes that change nothing", "serve /m", `"serve" "/m"`, true},
		{"another value", "8000", "8001", false},
		{"a setting more", "[Service]", "[Service]\nNice=5", false},
		{"a setting less", "Environment=B=2\n", "", false},
		{"the order of repeated settings", "A=1\nEnvironment=B=2", "B=2\nEnvironment=A=1", false},
		{"the same setting in another section", "[Unit]", "[Unit]\nNice=5", false},
		{"an empty value", "[Service]", "[Service]\nCapabilityBoundingSet=", false},
	} {
		changed := strings.Replace(base, tt.old, tt.new, 1)
		if got := Same([]byte(base), []byte(changed)); got != tt.want {
			t.Errorf("%s: Same = %v, want %v; changes %v", tt.name, got, tt.want, Changes([]byte(base), []byte(changed)))
		}
	}
}

func TestChangeLines(t *testing.T) {
	const old = "[Service]\nEnvironment=A=1\nTimeoutStopSec=40\nExecStart=:/opt/vllm/bin/vllm serve /m --max-model-len 65536 --port 8000\n"
	new := strings.NewReplacer("65536", "131072", "A=1", "B=2").Replace(old)
	new = strings.Replace(new, "TimeoutStopSec=40\n", "", 1)
	var got []string
	for _, c := range Changes([]byte(old), []byte(new)) {
		got = append(got, c.Lines()...)
	}
	want := []string{
		"- Environment=A=1",
		"+ Environment=B=2",
		"- ExecStart=… --max-model-len 65536 …",
		"+ ExecStart=… --max-model-len 131072 …",
		"- TimeoutStopSec=40",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
