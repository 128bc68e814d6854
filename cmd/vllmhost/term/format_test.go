package term

import (
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestDuration(t *testing.T) {
	for _, test := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0.0s"},
		{0, "0.0s"},
		{49 * time.Millisecond, "0.0s"},
		{400 * time.Millisecond, "0.4s"},
		{9940 * time.Millisecond, "9.9s"},
		{9960 * time.Millisecond, "10s"},
		{48 * time.Second, "48s"},
		{59400 * time.Millisecond, "59s"},
		{59600 * time.Millisecond, "1m00s"},
		{192 * time.Second, "3m12s"},
		{time.Hour - time.Second, "59m59s"},
		{3*time.Hour + 12*time.Minute, "3h12m"},
		{24 * time.Hour, "1d00h"},
		{51 * time.Hour, "2d03h"},
	} {
		if got := Duration(test.d); got != test.want {
			t.Errorf("Duration(%v) = %q, want %q", test.d, got, test.want)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, test := range []struct {
		bytes        int64
		size, memory string
	}{
		{0, "0 B", "0 B"},
		{999, "999 B", "999 B"},
		{1000, "1.0 kB", "1000 B"},
		{1024, "1.0 kB", "1.0 KiB"},
		{9_960_000, "10 MB", "9.5 MiB"},
		{168_000_000, "168 MB", "160 MiB"},
		{999_700_000, "1.0 GB", "953 MiB"},
		{595_148_120_384, "595 GB", "554 GiB"},
		{1_700_000_000_000, "1.7 TB", "1.5 TiB"},
		{44_023_414_784, "44 GB", "41 GiB"},
		{-5_000_000_000, "-5.0 GB", "-4.7 GiB"},
		{1<<63 - 1, "9.2 EB", "8.0 EiB"},
	} {
		if got := Size(test.bytes); got != test.size {
			t.Errorf("Size(%d) = %q, want %q", test.bytes, got, test.size)
		}
		if got := Memory(test.bytes); got != test.memory {
			t.Errorf("Memory(%d) = %q, want %q", test.bytes, got, test.memory)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{Count(0), "0"},
		{Count(999), "999"},
		{Count(-999), "-999"},
		{Count(1000), "1,000"},
		{Count(1_073_741_824), "1,073,741,824"},
		{Count(-1_234_567), "-1,234,567"},
		{Rate(0.04), "0.0 tok/s"},
		{Rate(82.06), "82.1 tok/s"},
		{Rate(99.96), "100 tok/s"},
		{Rate(2275.6), "2,276 tok/s"},
		{Percent(0.0109), "+1.1 %"},
		{Percent(-0.12), "-12.0 %"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}

func TestEscape(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"", ""},
		{"python3", "python3"},
		{`C:\n 'quoted' "too"`, `C:\n 'quoted' "too"`},
		{"größer 模型 🚀 …", "größer 模型 🚀 …"},
		{"line\nbreak\ttab\rreturn", `line\nbreak\ttab\rreturn`},
		{"\x1b]0;title\a\x7f", `\x1b]0;title\a\x7f`},
		{"\u009b2J", `\u009b2J`},
		{"abc\u202efed\u2066\u200b\ufeff", `abc\u202efed\u2066\u200b\ufeff`},
		{"tag \U000e0041", `tag \U000e0041`},
		{"\u2028 \u00a0", `\u2028 \u00a0`},
		{"bad \xff\xc3", `bad \xff\xc3`},
		{"replacement \ufffd", "replacement \ufffd"},
	} {
		if got := Escape(test.in); got != test.want {
			t.Errorf("Escape(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

// FuzzEscape holds Escape to its promise for any bytes.
func FuzzEscape(f *testing.F) {
	f.Add("\x1b[31m\u202e\xff\n\\x1b")
	f.Fuzz(func(t *testing.T, s string) {
		escaped := Escape(s)
		if !utf8.ValidString(escaped) {
			t.Errorf("Escape(%q) = %q, which is not UTF-8", s, escaped)
		}
		for _, r := range escaped {
			if !unicode.IsPrint(r) {
				t.Errorf("Escape(%q) = %q has %q in it", s, escaped, r)
			}
		}
		if again := Escape(escaped); again != escaped {
			t.Errorf("Escape(%q) = %q", escaped, again)
		}
	})
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		s    string
		n    int
		want string
	}{
		{"loading", 7, "loading"},
		{"loading weights", 10, "loading..."},
		{"模型模型模型", 8, "模型..."},
		{"e\u0301e\u0301e\u0301e\u0301", 4, "e\u0301e\u0301e\u0301e\u0301"},
		{"loading", 2, "..."},
	} {
		if got := clip(test.s, test.n); got != test.want {
			t.Errorf("clip(%q, %d) = %q, want %q", test.s, test.n, got, test.want)
		}
	}
}
