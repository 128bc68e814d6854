package unitgen

import "strings"

// Quote writes one word the way systemd reads it back, byte for byte, in ExecStart= with the ":" prefix, Environment=
// and every other setting that is split into words (systemd.syntax(7), "Quoting"; systemd.service(5), "Command
// lines"). Words without special characters stay bare, so that units read as if written by hand. The word must be
// valid UTF-8 without NUL: systemd can carry neither.
//
// The ":" prefix turns off environment substitution, so "$" needs nothing; "%" starts a specifier everywhere and is
// doubled.
func Quote(word string) string {
	if isBare(word) {
		return word
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(word); i++ {
		switch c := word[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '%':
			b.WriteString("%%")
		case c < 0x20 || c == 0x7f:
			const hex = "0123456789abcdef"
			b.WriteString(`\x`)
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// isBare reports whether a word means itself without quotes. A command's words may not begin with the prefixes of
// systemd.service(5); a lone ";" separates commands; neither is made of the characters allowed here.
func isBare(word string) bool {
	if word == "" {
		return false
	}
	for i := 0; i < len(word); i++ {
		c := word[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("/._-", c) >= 0:
		case strings.IndexByte(":=,+@", c) >= 0 && i > 0:
		default:
			return false
		}
	}
	return true
}

// splitWords is the inverse of words joined by Quote: it reads the setting values this package writes.
func splitWords(value string) []string {
	var words []string
	var b strings.Builder
	inWord, quoted := false, false
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case !quoted && (c == ' ' || c == '\t'):
			if inWord {
				words = append(words, b.String())
				b.Reset()
				inWord = false
			}
			continue
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted && i+3 < len(value) && value[i+1] == 'x' && isHex(value[i+2]) && isHex(value[i+3]):
			b.WriteByte(unhex(value[i+2])<<4 | unhex(value[i+3]))
			i += 3
		case c == '\\' && quoted && i+1 < len(value):
			b.WriteByte(value[i+1])
			i++
		case c == '%' && i+1 < len(value) && value[i+1] == '%':
			b.WriteByte('%')
			i++
		default:
			b.WriteByte(c)
		}
		inWord = true
	}
	if inWord {
		words = append(words, b.String())
	}
	return words
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

// quoteAll joins words, each quoted where it needs to be.
func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Quote(w)
	}
	return strings.Join(quoted, " ")
}

// specifierSafe doubles "%" for settings that expand specifiers but are not split into words (Description=,
// EnvironmentFile=, WorkingDirectory=).
func specifierSafe(value string) string {
	return strings.ReplaceAll(value, "%", "%%")
}
