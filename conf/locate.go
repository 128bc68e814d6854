package conf

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// maxDepth is how deep tables, lists and dotted keys of a profile may nest. The parser would follow any depth, and
// take the memory of the host with it.
const maxDepth = 32

// locate finds where each key and each value of a TOML text stands, in the order of the text: the parser tells the
// values, but neither the places of both nor the order. It expects valid TOML 1.1; of other texts it finds something,
// without harm. It stops where maxDepth is exceeded, and says where that is.
func locate(src *source) (root *node, tooDeep *span) {
	s := &locator{src: src, text: src.text, root: &node{src: src, kind: tableKind}}
	s.document()
	return s.root, s.tooDeep
}

type locator struct {
	src     *source
	text    string
	at      int
	root    *node
	tooDeep *span
}

// keyPart is one part of a dotted key.
type keyPart struct {
	name string
	span span
}

func (s *locator) document() {
	table, depth := s.root, 0
	for s.skipBlank(); s.at < len(s.text); s.skipBlank() {
		if s.text[s.at] != '[' {
			s.keyValue(table, depth)
			continue
		}
		header := span{start: s.at}
		list := strings.HasPrefix(s.text[s.at:], "[[")
		s.at++
		if list {
			s.at++
		}
		parts := s.key()
		s.skipTo("]\n")
		for s.at < len(s.text) && s.text[s.at] == ']' {
			s.at++
		}
		header.end = s.at
		if depth = len(parts); s.deeper(depth, header) {
			return
		}
		table = s.header(parts, header, list)
	}
}

// header opens the table of a [header] or [[header]].
func (s *locator) header(parts []keyPart, header span, list bool) *node {
	if len(parts) == 0 {
		return s.root
	}
	last := len(parts) - 1
	n := s.walk(s.root, parts[:last], header).open(s.src, parts[last], header)
	if !list {
		n.val, n.header = header, true
		return n.last()
	}
	n.kind = listKind
	item := &node{src: s.src, name: n.name, key: n.key, val: header, kind: tableKind, header: true}
	n.items = append(n.items, item)
	return item
}

// walk opens the tables of a dotted key. What creates them stands at place.
func (s *locator) walk(n *node, parts []keyPart, place span) *node {
	for _, p := range parts {
		n = n.open(s.src, p, place).last()
	}
	return n
}

func (s *locator) keyValue(table *node, depth int) {
	start := s.at
	parts := s.key()
	if len(parts) == 0 {
		s.at = max(s.at, start+1) // not TOML; the parser says so
		return
	}
	whole := span{start, parts[len(parts)-1].span.end}
	if depth += len(parts); s.deeper(depth, whole) {
		return
	}
	last := len(parts) - 1
	n := s.walk(table, parts[:last], whole).open(s.src, parts[last], whole)
	s.skipSpace()
	if s.at < len(s.text) && s.text[s.at] == '=' {
		s.at++
	}
	s.skipSpace()
	s.value(n, depth)
}

func (s *locator) value(n *node, depth int) {
	start := s.at
	n.val = span{start, start}
	if s.at == len(s.text) || s.deeper(depth, span{start, start + 1}) {
		return
	}
	switch s.text[s.at] {
	case '"', '\'':
		s.skipString()
	case '[':
		n.kind = listKind
		s.group(']', func() {
			item := &node{src: s.src, name: n.name, key: n.key}
			n.items = append(n.items, item)
			s.value(item, depth+1)
		})
	case '{':
		n.kind = tableKind
		s.group('}', func() { s.keyValue(n, depth) })
	default: // a number, a date, true or false; a date may hold a space
		s.skipTo(",]}#\r\n")
		s.at = start + len(strings.TrimRight(s.text[start:s.at], " \t"))
	}
	n.val.end = s.at
}

// group reads the members between brackets.
func (s *locator) group(closing byte, member func()) {
	s.at++
	for s.skipBlank(); s.at < len(s.text); s.skipBlank() {
		switch s.text[s.at] {
		case closing:
			s.at++
			return
		case ',':
			s.at++
		default:
			start := s.at
			member()
			s.at = max(s.at, start+1)
		}
	}
}

// key reads a dotted key. It returns no parts where none begins.
func (s *locator) key() (parts []keyPart) {
	for {
		s.skipSpace()
		start := s.at
		if s.at == len(s.text) {
			return parts
		}
		if q := s.text[s.at]; q == '"' || q == '\'' {
			s.skipString()
			parts = append(parts, keyPart{unquoteKey(s.text[start:s.at]), span{start, s.at}})
		} else {
			for s.at < len(s.text) && isBareKey(s.text[s.at]) {
				s.at++
			}
			if s.at == start {
				return parts
			}
			parts = append(parts, keyPart{s.text[start:s.at], span{start, s.at}})
		}
		end := s.at
		s.skipSpace()
		if s.at == len(s.text) || s.text[s.at] != '.' || len(parts) > maxDepth {
			s.at = end
			return parts
		}
		s.at++
	}
}

func isBareKey(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// unquoteKey returns the name that a quoted key stands for. Escapes are left to the parser.
func unquoteKey(quoted string) string {
	if !strings.Contains(quoted, `\`) || quoted[0] == '\'' {
		return quoted[1:max(1, len(quoted)-1)]
	}
	var key struct{ K string }
	if _, err := toml.Decode("K = "+quoted, &key); err != nil {
		return quoted
	}
	return key.K
}

// skipString passes over a string in any of the four forms.
func (s *locator) skipString() {
	quote := s.text[s.at : s.at+1]
	escapes := quote == `"`
	closing, multiline := quote, false
	if strings.HasPrefix(s.text[s.at:], strings.Repeat(quote, 3)) {
		closing, multiline = strings.Repeat(quote, 3), true
	}
	for s.at += len(closing); s.at < len(s.text); s.at++ {
		switch {
		case escapes && s.text[s.at] == '\\':
			s.at++
		case strings.HasPrefix(s.text[s.at:], closing):
			s.at += len(closing)
			for extra := 0; multiline && extra < 2 && s.at < len(s.text) && s.text[s.at:s.at+1] == quote; extra++ {
				s.at++ // one or two quotes may stand before the closing three
			}
			return
		case !multiline && s.text[s.at] == '\n':
			return
		}
	}
	s.at = len(s.text)
}

func (s *locator) skipSpace() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\t') {
		s.at++
	}
}

// skipBlank passes over spaces, ends of lines and comments.
func (s *locator) skipBlank() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		case '#':
			s.skipTo("\n")
		default:
			return
		}
	}
}

func (s *locator) skipTo(any string) {
	for s.at < len(s.text) && strings.IndexByte(any, s.text[s.at]) < 0 {
		s.at++
	}
}

// deeper ends the search where the depth is exceeded.
func (s *locator) deeper(depth int, where span) bool {
	if depth <= maxDepth {
		return false
	}
	if s.tooDeep == nil {
		s.tooDeep = &where
	}
	s.at = len(s.text)
	return true
}
