package conf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity tells errors, which stop everything, from warnings.
type Severity string

// The values of Severity.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Pos is a place in a file. Line and Column count from 1, Column in characters; both are 0 when only the file is meant.
type Pos struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Length int    `json:"length,omitempty"` // characters to underline, at least 1 when there is a line
}

// Diagnostic is one problem and the place it points to. As JSON it is one flat object.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	Pos
	Key     string `json:"key,omitempty"` // the key's full name, such as instance.kimi-int4.port
	Message string `json:"message"`       // lower case, without a full stop
	Hint    string `json:"hint,omitempty"`
	Source  string `json:"-"` // the text of the line that Pos points to, without its end
}

// Diagnostics are the problems of a profile, ordered by file (in merge order), line and column.
type Diagnostics []Diagnostic

// HasErrors reports whether any of the diagnostics is an error.
func (ds Diagnostics) HasErrors() bool { return ds.count(Error) > 0 }

// Summary counts the diagnostics in words: "2 errors, 1 warning", or "no problems".
func (ds Diagnostics) Summary() string {
	var parts []string
	for _, s := range []Severity{Error, Warning} {
		switch n := ds.count(s); n {
		case 0:
		case 1:
			parts = append(parts, "1 "+string(s))
		default:
			parts = append(parts, fmt.Sprintf("%d %ss", n, s))
		}
	}
	if len(parts) == 0 {
		return "no problems"
	}
	return strings.Join(parts, ", ")
}

// String writes all the diagnostics, one below the other, each line ended.
func (ds Diagnostics) String() string {
	var b strings.Builder
	for _, d := range ds {
		b.WriteString(d.String())
	}
	return b.String()
}

func (ds Diagnostics) count(s Severity) (n int) {
	for _, d := range ds {
		if d.Severity == s {
			n++
		}
	}
	return n
}

// sorted orders the diagnostics as Load promises. files is the merge order; what is not in it comes first.
func (ds Diagnostics) sorted(files []string) Diagnostics {
	slices.SortStableFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Column, b.Column),
		)
	})
	return ds
}

// String writes the diagnostic as people read it, each line ended:
//
//	/etc/vllmhost/host.toml:14:1: error: unknown key "tensor_paralel_size" in [instance.kimi-int4]
//	   14 | tensor_paralel_size = 8
//	      | ^^^^^^^^^^^^^^^^^^^ did you mean "tensor_parallel_size"?
//
// Control characters of the file are escaped, and a very long line is cut on both sides of the place.
func (d Diagnostic) String() string {
	var b strings.Builder
	b.WriteString(escape(d.File))
	if d.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", d.Line, d.Column)
	}
	fmt.Fprintf(&b, ": %s: %s\n", d.Severity, d.Message)
	if d.Line == 0 {
		if d.Hint != "" {
			fmt.Fprintf(&b, "  hint: %s\n", d.Hint)
		}
		return b.String()
	}
	number := fmt.Sprintf("%5d", d.Line)
	text, indent, width := excerpt(d.Source, d.Column, d.Length)
	b.WriteString(strings.TrimRight(number+" | "+text, " ") + "\n")
	mark := indent + strings.Repeat("^", width)
	if d.Hint != "" {
		mark += " " + d.Hint
	}
	fmt.Fprintf(&b, "%s | %s\n", strings.Repeat(" ", len(number)), mark)
	return b.String()
}
