package main

import (
	"strings"
	"testing"
	"time"
)

func write(prompt string, seed uint64, limit int) string {
	w := newWriter(prompt, seed)
	var b strings.Builder
	for range limit {
		text, _, eos := w.next()
		if eos {
			break
		}
		b.WriteString(text)
	}
	return b.String()
}

func TestAnswers(t *testing.T) {
	for _, tt := range []struct{ prompt, want string }{
		{"1, 2, 3, 4, 5, 6, 7, 8,", " 9, 10, 11, 12,"},
		{"word: apple\necho: apple\nword: stone\necho: stone\nword: 9c1f77aa\necho:", " 9c1f77aa\n"},
		{"apple -> apple\nriver -> river\n3f9a77c2 ->", " 3f9a77c2\n"},
		{"12 * 10 = 120\n3 * 4 = 12\n17 * 23 =", " 391\n"},
		{"Q: 2 * 2\nA: 4\nQ: 17 * 23\nA:", " 391\n"},
		{"France: Paris\nItaly: Rome\nJapan:", " Tokyo\n"},
		{"The capital of France is Paris.\nThe capital of Norway is", " Oslo\n"},
		{`Reply with the word "OK" and nothing else.`, "OK"},
	} {
		if got := write(tt.prompt, 0, 8); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.prompt, got, tt.want)
		}
	}
}

func TestTextIsEnglishAndRepeatable(t *testing.T) {
	a := write("Tell me about the sea.", 1, 400)
	if b := write("Tell me about the sea.", 1, 400); a != b {
		t.Error("the same prompt and seed give another text")
	}
	if b := write("Tell me about the sky.", 1, 400); a == b {
		t.Error("another prompt gives the same text")
	}
	if !strings.HasSuffix(a, ".") || len(strings.Fields(a)) < 100 {
		t.Errorf("does not end with a sentence, or early: %q", a)
	}
	for token := range strings.FieldsSeq(a) {
		if !strings.Contains(corpus, token) {
			t.Errorf("%q is not from the corpus", token)
		}
	}
}

func TestTokenize(t *testing.T) {
	for _, text := range []string{"The harbour was quiet.", " a  b\n\nc", "1, 2, 3,", "naïve — 漢字 !!!!", "extraordinarily", "\x01"} {
		if got := strings.Join(tokenize(text), ""); got != text {
			t.Errorf("tokens of %q join to %q", text, got)
		}
	}
}

func TestStopStrings(t *testing.T) {
	r := newRequest()
	r.maxTokens, r.stop = 100, []string{"wait"}
	r.writer = &writer{queue: []string{"a", " w", "ait", "x"}, rng: newWriter("", 0).rng}
	var reason string
	for reason == "" {
		reason = r.emit(time.Now())
	}
	tokens, _, stop := r.take()
	if got := textOf(tokens); got != "a w" || stop != "wait" || r.generated != 3 {
		t.Errorf("text %q, stopped by %q after %d tokens", got, stop, r.generated)
	}
}
