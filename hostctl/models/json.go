package models

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"
)

// scanner reads JSON from a stream in constant memory and several times as fast as encoding/json's tokens: an index or the
// headers of a large model hold 20 MB of names. It accepts all valid JSON up to its limits. It is lax where that does not
// matter here: about the form of numbers, and about escape sequences in values that are skipped.
type scanner struct {
	source io.Reader
	buf    []byte // buf[at:end] was read and not used yet
	at     int
	end    int
	err    error // of source
}

const (
	scanBuffer = 64 << 10 // also the longest string that is not skipped
	maxDepth   = 64
)

var (
	errSyntax   = errors.New("it is not valid JSON")
	errTooDeep  = errors.New("its JSON is nested deeper than 64 levels")
	errTooLong  = errors.New("it has a name longer than 64 KiB")
	errTooLarge = errors.New("it has a number that is no size of a file")
	errEnds     = errors.New("its JSON ends too early")
)

func newScanner(source io.Reader) *scanner {
	return &scanner{source: source, buf: make([]byte, scanBuffer)}
}

// more reads on. What is unused moves to the front of the buffer. It is false at the end and when the buffer is full.
func (s *scanner) more() bool {
	if s.err != nil {
		return false
	}
	if s.at > 0 {
		copy(s.buf, s.buf[s.at:s.end])
		s.at, s.end = 0, s.end-s.at
	}
	if s.end == len(s.buf) {
		return false
	}
	n, err := io.ReadAtLeast(s.source, s.buf[s.end:], 1)
	s.end += n
	s.err = err
	return n > 0
}

// peek returns the next byte that is not white space, without using it, or 0 at the end.
func (s *scanner) peek() byte {
	for {
		for ; s.at < s.end; s.at++ {
			switch c := s.buf[s.at]; c {
			case ' ', '\n', '\t', '\r':
			default:
				return c
			}
		}
		if !s.more() {
			return 0
		}
	}
}

// expect uses the byte c.
func (s *scanner) expect(c byte) error {
	if s.at < s.end && s.buf[s.at] == c { // nearly always
		s.at++
		return nil
	}
	if s.peek() != c {
		return s.unexpected()
	}
	s.at++
	return nil
}

// unexpected is the error for what comes next.
func (s *scanner) unexpected() error {
	switch {
	case s.at < s.end:
		return errSyntax
	case s.err != nil && s.err != io.EOF:
		return s.err
	default:
		return errEnds
	}
}

// object reads an object, calling member for each of its members. That has to read all of it: str, colon and the value.
func (s *scanner) object(member func() error) error { return s.sequence('{', '}', member) }

// array reads an array, calling element for each element.
func (s *scanner) array(element func() error) error { return s.sequence('[', ']', element) }

func (s *scanner) sequence(open, shut byte, item func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.peek() == shut {
		s.at++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if s.peek() == shut {
			s.at++
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

func (s *scanner) colon() error { return s.expect(':') }

// str reads a string. The bytes are valid until the next call of any method.
func (s *scanner) str() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	searched := 0
	for {
		found := bytes.IndexByte(s.buf[s.at+searched:s.end], '"')
		if found < 0 {
			searched = s.end - s.at
			if !s.more() {
				if searched == len(s.buf) {
					return nil, errTooLong
				}
				s.at = s.end
				return nil, s.unexpected()
			}
			continue
		}
		length := searched + found
		text := s.buf[s.at : s.at+length]
		if slashes := len(text) - len(bytes.TrimRight(text, `\`)); slashes%2 == 1 {
			searched = length + 1 // the quote is escaped
			continue
		}
		s.at += length + 1
		return unescape(text)
	}
}

// unescape returns what the text between a string's quotes stands for.
func unescape(text []byte) ([]byte, error) {
	if isPlain(text) {
		return text, nil
	}
	escaped := false
	for _, c := range text {
		if c < ' ' {
			return nil, errSyntax
		}
		escaped = escaped || c == '\\'
	}
	if !utf8.Valid(text) {
		return nil, errSyntax
	}
	if !escaped {
		return text, nil
	}
	var decoded string
	if json.Unmarshal(append(append([]byte{'"'}, text...), '"'), &decoded) != nil {
		return nil, errSyntax
	}
	return []byte(decoded), nil
}

// isPlain says that a text is ASCII without control characters and backslashes. It goes by eight bytes: the high bit of a
// byte is set in c-0x20 for a control character, in (c^'\\')-1 for a backslash, and in c itself outside ASCII. A borrow
// from a neighbour only makes it say no too often.
func isPlain(text []byte) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		c := binary.LittleEndian.Uint64(text)
		if (c|(c-each*0x20)|((c^each*'\\')-each))&high != 0 {
			return false
		}
	}
	for _, c := range text {
		if c < ' ' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// number reads a whole number. Sums of a few do not overflow: it is less than 2^62.
func (s *scanner) number() (uint64, error) {
	if c := s.peek(); c < '0' || c > '9' {
		return 0, s.unexpected()
	}
	var n uint64
	for {
		for ; s.at < s.end; s.at++ {
			c := s.buf[s.at]
			if c < '0' || c > '9' {
				return n, nil
			}
			if n >= 1<<58 {
				return 0, errTooLarge
			}
			n = n*10 + uint64(c-'0')
		}
		if !s.more() {
			return n, nil
		}
	}
}

// finish makes sure that nothing but white space follows.
func (s *scanner) finish() error {
	if s.peek() != 0 || s.at < s.end {
		return errSyntax
	}
	if s.err != io.EOF {
		return s.err
	}
	return nil
}

// skip reads a value of any kind.
func (s *scanner) skip() error { return s.skipAt(0) }

func (s *scanner) skipAt(depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	switch c := s.peek(); {
	case c == '{':
		return s.object(func() error {
			if err := s.skipString(); err != nil {
				return err
			}
			if err := s.colon(); err != nil {
				return err
			}
			return s.skipAt(depth + 1)
		})
	case c == '[':
		return s.array(func() error { return s.skipAt(depth + 1) })
	case c == '"':
		return s.skipString()
	case c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z':
		return s.skipWord()
	default:
		return s.unexpected()
	}
}

// skipString reads a string of any length.
func (s *scanner) skipString() error {
	if err := s.expect('"'); err != nil {
		return err
	}
	escaped := false
	for {
		for ; s.at < s.end; s.at++ {
			switch c := s.buf[s.at]; {
			case c < ' ':
				return errSyntax
			case escaped:
				escaped = false
			case c == '\\':
				escaped = true
			case c == '"':
				s.at++
				return nil
			}
		}
		if !s.more() {
			return s.unexpected()
		}
	}
}

// skipWord reads a number, true, false or null.
func (s *scanner) skipWord() error {
	var word [8]byte
	length := 0
	for {
		for ; s.at < s.end; s.at++ {
			c := s.buf[s.at]
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E') {
				return checkWord(word[:min(length, len(word))])
			}
			if length < len(word) {
				word[length] = c
			}
			length++
		}
		if !s.more() {
			return checkWord(word[:min(length, len(word))])
		}
	}
}

// checkWord tells a number from a literal by its first byte.
func checkWord(word []byte) error {
	if c := word[0]; 'a' <= c && c <= 'z' {
		switch string(word) {
		case "true", "false", "null":
			return nil
		}
		return errSyntax
	}
	return nil
}
