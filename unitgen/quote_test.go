package unitgen

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestQuote(t *testing.T) {
	for _, tt := range []struct{ word, want string }{
		{"serve", "serve"},
		{"--port", "--port"},
		{"/srv/models/Kimi-K2.5", "/srv/models/Kimi-K2.5"},
		{"", `""`},
		{"a b", `"a b"`},
		{"$HOME", `"$HOME"`},
		{"100%", `"100%%"`},
		{`{"method":"eagle3"}`, `"{\"method\":\"eagle3\"}"`},
		{`back\slash`, `"back\\slash"`},
		{"line\nbreak", `"line\x0abreak"`},
		{"\x7f", `"\x7f"`},
		{"größe", `"größe"`},
		{";", `";"`},
		{"#no comment", `"#no comment"`},
		// Prefixes of a command (systemd.service(5)) are no prefixes within quotes of ours, but nobody has to know that.
		{"+x", `"+x"`}, {":x", `":x"`}, {"@x", `"@x"`},
	} {
		if got := Quote(tt.word); got != tt.want {
			t.Errorf("Quote(%q) = %s, want %s", tt.word, got, tt.want)
		}
	}
}

func FuzzQuote(f *testing.F) {
	for _, seed := range []string{"", "a b", `\x41`, "%%", `"`, "\\", "\t\n", "ü%\"\\", "--x=-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if !utf8.ValidString(word) || strings.ContainsRune(word, 0) {
			t.Skip("not for a unit file")
		}
		quoted := Quote(word)
		if strings.ContainsAny(quoted, "\n\r") {
			t.Errorf("Quote(%q) = %q ends its line", word, quoted)
		}
		got := splitWords(quoted + "  " + quoted)
		if len(got) != 2 || got[0] != word || got[1] != word {
			t.Errorf("reading back %s gives %q, want %q twice", quoted, got, word)
		}
	})
}
