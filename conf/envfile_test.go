package conf

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An env_file is read as systemd reads it: the names, and where they stand.
func TestAssignments(t *testing.T) {
	for _, c := range []struct {
		text string
		want []assignment
	}{
		{"", nil},
		{"A=1\nB=2", []assignment{{"A", 1}, {"B", 2}}},
		{"  A = 1\r\n\r\nB=\n", []assignment{{"A", 1}, {"B", 3}}},
		{"# A=1\n; B=2\nC=3", []assignment{{"C", 3}}},
		{"A=one \\\nB=still one\nC=3", []assignment{{"A", 1}, {"C", 3}}},
		{"A='one\nB=still one'\nC=3", []assignment{{"A", 1}, {"C", 3}}},
		{"A=\"one\\\"\nB=still one\"'\nC=still' \nD=4", []assignment{{"A", 1}, {"D", 4}}},
		{"A=it's\nB=2", []assignment{{"A", 1}, {"B", 2}}},
		{"A='open\nB=2", []assignment{{"A", 1}}},
		{"nothing\nA=1", []assignment{{"nothing\n", 1}, {"A", 2}}},
		{"=1", []assignment{{"", 1}}},
		{"A=\\", []assignment{{"A", 1}}},
	} {
		if diff := cmp.Diff(c.want, assignments(c.text), cmp.AllowUnexported(assignment{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
}

// Whatever an env_file holds, a message about it shows no value.
func FuzzEnvFile(f *testing.F) {
	for _, text := range []string{"A=1\nPATH=x", "A='\n", "B=\"\\", "# \\\nC=1", "export D=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const secret = "sk-5ecret"
		if fault := envFileFault(text + "\nVLLM_API_KEY=" + secret + "\n"); fault != nil && strings.Contains(fault.message+fault.hint, secret) {
			t.Errorf("%q shows the secret: %s", text, fault.message)
		}
		for _, a := range assignments(text) {
			if a.line < 1 || a.line > 1+strings.Count(text, "\n") {
				t.Errorf("%q: line %d", text, a.line)
			}
		}
	})
}
