package conf

import (
	"sort"
	"strings"
	"unicode/utf8"
)

// source is one file of a profile.
type source struct {
	name  string
	text  string
	lines []int // where each line begins
}

// span is a range of bytes of a source.
type span struct{ start, end int }

func newSource(name, text string) *source {
	s := &source{name: name, text: text, lines: []int{0}}
	for i := range len(text) {
		if text[i] == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// pos says where a span begins, and how many characters of it are on that line.
func (s *source) pos(at span) Pos {
	start := min(max(at.start, 0), len(s.text))
	line := sort.Search(len(s.lines), func(i int) bool { return s.lines[i] > start })
	first := s.lines[line-1]
	last := first + len(s.line(line))
	return Pos{
		File:   s.name,
		Line:   line,
		Column: utf8.RuneCountInString(s.text[first:start]) + 1,
		Length: max(1, utf8.RuneCountInString(s.text[start:max(start, min(at.end, last))])),
	}
}

// line returns the text of a line, counted from 1, without its end.
func (s *source) line(n int) string {
	end := len(s.text)
	if n < len(s.lines) {
		end = s.lines[n] - 1
	}
	return strings.TrimSuffix(s.text[s.lines[n-1]:end], "\r")
}
