package term

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape returns s with everything that a terminal does not simply show replaced by a visible escape sequence in Go's
// notation: control and escape characters, line breaks, characters that change the direction of writing or are
// invisible, spaces other than the ASCII one, bytes that are not UTF-8. Printable text, backslashes included, comes back
// as it is, so that Escape(Escape(s)) == Escape(s).
func Escape(s string) string {
	return escape(s, "")
}

// lines returns a block of text escaped, but for its newlines and tabs, and with a newline at its end.
func lines(block string) string {
	return strings.TrimSuffix(escape(block, "\n\t"), "\n") + "\n"
}

// escape is Escape, but for the characters in keep.
func escape(s, keep string) string {
	var b strings.Builder
	for i, r := range s { // an invalid byte comes as utf8.RuneError, one byte wide
		_, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case unicode.IsPrint(r), strings.ContainsRune(keep, r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
