package main

import (
	"strings"
	"testing"
)

func TestParseScript(t *testing.T) {
	acts, err := parseScript(strings.Join([]string{
		"-- a remark",
		"# It begins.",
		"$ vllmhost swap glm",
		"exit 3",
		"want ^Rolled back",
		"want serves again$",
		"",
		"reboot",
		"powercut",
		"$ vllmhost status",
		"",
	}, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	kinds := []actKind{actComment, actCommand, actBlank, actReboot, actPowerCut, actCommand}
	if len(acts) != len(kinds) {
		t.Fatalf("%d acts, want %d", len(acts), len(kinds))
	}
	for i, a := range acts {
		if a.kind != kinds[i] {
			t.Errorf("act %d (line %d) is of kind %d, want %d", i, a.line, a.kind, kinds[i])
		}
	}
	if swap := acts[1]; swap.text != "vllmhost swap glm" || swap.exit != 3 || len(swap.want) != 2 || swap.line != 3 {
		t.Errorf("the swap is read as %+v", swap)
	}
	if acts[5].exit != 0 {
		t.Error("a command without exit has to end with 0")
	}
}

func TestParseScriptErrors(t *testing.T) {
	for text, want := range map[string]string{
		"vllmhost status":     `line 1: unknown "vllmhost"`,
		"# hello\nexit 3":     `line 2: "exit 3" follows no command`,
		"$ true\nwant (":      "line 2: error parsing regexp",
		"$ true\nexit never":  "line 2: ",
		"$ true\n\nwant true": `line 3: "want true" follows no command`,
	} {
		if _, err := parseScript(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// The demo that is shipped can be played.
func TestDemoScript(t *testing.T) {
	acts, err := parseScript(demoScript)
	if err != nil {
		t.Fatal(err)
	}
	if len(acts) < 10 {
		t.Errorf("%d acts", len(acts))
	}
}
