package conf

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The part of a long line that is shown: before the place, and from it on.
const (
	charsBefore = 60
	charsAfter  = 100
)

// excerpt returns a line as it is shown, what to write below it to get under the given column, and how many cells of
// a terminal the length characters from there take.
func excerpt(line string, column, length int) (text, indent string, width int) {
	var shown, under strings.Builder
	at, tail := column-1, ""
	if n := utf8.RuneCountInString(line); n > charsBefore+charsAfter {
		from := max(0, at-charsBefore)
		if from > 0 {
			shown.WriteString("…")
			under.WriteString(" ")
		}
		line, at = characters(line, from, at+charsAfter), at-from
		if from+utf8.RuneCountInString(line) < n {
			tail = "…"
		}
	}
	for i, size := 0, 0; line != ""; i, line = i+1, line[size:] {
		_, size = utf8.DecodeRuneInString(line)
		cell := line[:size]
		if cell != "\t" {
			cell = escape(cell)
		}
		shown.WriteString(cell)
		switch {
		case i < at && cell == "\t":
			under.WriteString("\t") // the terminal then indents both lines alike
		case i < at:
			under.WriteString(strings.Repeat(" ", cells(cell)))
		case i < at+length:
			width += cells(cell)
		}
	}
	return shown.String() + tail, under.String(), max(width, 1)
}

// characters returns those of a text from one to before another. A byte that is no UTF-8 counts as one.
func characters(text string, from, to int) string {
	start := len(text)
	for i, at := 0, 0; at < len(text); i++ {
		switch i {
		case from:
			start = at
		case to:
			return text[start:at]
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return text[start:]
}

// cells returns how many cells of a terminal a text takes, near enough to put a mark under it.
func cells(text string) (n int) {
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me):
		case wide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

// wide reports whether a character takes two cells: the East Asian wide blocks of Unicode's UAX 11, and emoji.
func wide(r rune) bool {
	return r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 ||
		r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 ||
		r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000 && r <= 0x3fffd)
}

// escape writes control, escape and bidirectional characters, and bytes that are no UTF-8, so that they can be read
// and do nothing to a terminal.
func escape(text string) string {
	clean := utf8.ValidString(text)
	for _, r := range text {
		clean = clean && unicode.IsPrint(r)
	}
	if clean {
		return text
	}
	var b strings.Builder
	for i, size := 0, 0; i < len(text); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(text[i:])
		if unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.Quote(text[i : i+size])
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// quote quotes a text of the profile for a message, cut when it is very long.
func quote(text string) string {
	const longest = 80
	if runes := []rune(text); len(runes) > longest {
		return strconv.Quote(string(runes[:longest])) + "…"
	}
	return strconv.Quote(text)
}
