package conf

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// notText returns where a byte stands that no UTF-8 text has, or -1.
func notText(text string) int {
	for i, r := range text {
		if r == 0 {
			return i
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return i
			}
		}
	}
	return -1
}

// parse is the TOML parser with its panics caught: it has some for what it takes to be bugs of its own.
func parse(text string) (values map[string]any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot parse this file: %v", r)
		}
	}()
	_, err = toml.Decode(text, &values)
	return values, err
}

// syntax reports what the parser says, where it says so. The keys before that place are in root.
func (l *loader) syntax(src *source, root *node, err error) {
	var pe toml.ParseError
	if !errors.As(err, &pe) {
		l.on(src, span{0, 1}, nil, err.Error(), "")
		return
	}
	where := span{pe.Position.Start, pe.Position.Start + pe.Position.Len}
	message, hint := syntaxWords(pe.Message)
	if key, ok := definedTwice(pe.Message); ok {
		parts := (&locator{text: key}).key()
		names := make([]string, len(parts))
		for i, p := range parts {
			names[i] = p.name
		}
		message, hint = fmt.Sprintf("%s is defined twice", quote(key)), "join the two"
		if first := root.find(names...); first != nil {
			hint = fmt.Sprintf("first on line %d; join the two", src.pos(first.key).Line)
		}
		where = (&locator{text: src.text, at: where.start}).wholeKey()
	}
	l.on(src, where, nil, message, hint)
}

// wholeKey returns the span of the dotted key at the place.
func (s *locator) wholeKey() span {
	start := s.at
	s.key()
	return span{start, s.at}
}

// definedTwice reads the key out of the parser's messages about a key that is there already.
func definedTwice(message string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(message, "Key '")
	if !ok {
		return "", false
	}
	for _, end := range []string{"' has already been defined.", "' was already created"} {
		if key, _, ok := strings.Cut(rest, end); ok {
			return key, true
		}
	}
	return "", false
}

// syntaxWords turns the parser's message into ours.
func syntaxWords(message string) (words, hint string) {
	if strings.HasSuffix(message, "but got end of file instead") || strings.HasPrefix(message, "unexpected EOF") {
		return "the file ends too early", "a quote or bracket before it is not closed"
	}
	for _, w := range []struct{ says, words, hint string }{
		{"strings cannot contain newlines", "the string does not end on this line", `close it, or use """ for several lines`},
		{`expected value but found '\n'`, "a value is missing here", ""},
		{`expected value but found "`, "this is no value", "put text in quotes"},
		{"expected value but found '", "this is no value", "put text in quotes"},
		{`expected '.' or '=', but got '\n'`, `"=" and a value are missing here`, ""},
		{"expected '.' or '=', but got '{'", "this is no key", "a profile is TOML, not JSON"},
		{"expected '.' or '='", `"=" is missing before this`, "a key with other characters than a-z, A-Z, 0-9, - and _ needs quotes"},
		{"expected '.' or ']' to end table name", `"]" is missing here`, ""},
		{"expected a top-level item to end with a newline", "there is more on this line than one key and its value", "one key a line; put text in quotes"},
		{"expected a comma (',') or array terminator", "the list does not go on like this", `put "," between its values and "]" at its end`},
		{"expected a comma or an inline table terminator", "the table does not go on like this", `put "," between its keys and "}" at its end`},
		{"invalid escape", "this escape is unknown in a string", `for a backslash, write two, or put the string in single quotes`},
	} {
		if strings.HasPrefix(message, w.says) {
			return w.words, w.hint
		}
	}
	message = strings.TrimSuffix(message, ".")
	r, size := utf8.DecodeRuneInString(message)
	return escape(string(unicode.ToLower(r)) + message[size:]), ""
}
