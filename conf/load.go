// Package conf reads the host profile: what the administrator wants.
//
// It owns the profile's keys, their defaults, units and rules, and the diagnostics that point into the files. It does
// not know units, systemd or the running host.
package conf

// Load reads the profile at path (host.toml) and the files of the directory beside it with the same name and ".d"
// instead of ".toml" (host.d/*.toml, in name order); a later file's keys win. It reports all problems at once. The
// Profile is nil exactly when diags.HasErrors().
func Load(path string) (p *Profile, diags Diagnostics) {
	panic("not written yet")
}

// Diagnostics are the problems of a profile, ordered by file, line and column.
type Diagnostics []Diagnostic

// Diagnostic is one problem and the place it points to.
type Diagnostic struct {
	Severity Severity
	Pos      Pos
	Message  string // lower case, without a full stop
	Hint     string // what to do instead; may be empty
	Line     string // the text of the line Pos points to, without its end; empty when there is none
}

// Severity tells errors, which stop everything, from warnings.
type Severity string

// The values of Severity.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Pos is a place in a file. Line and Column count from 1, Column in characters; both are 0 when only the file is meant.
type Pos struct {
	File   string
	Line   int
	Column int
	Length int // characters to underline, at least 1
}

// HasErrors reports whether any of the diagnostics is an error.
func (ds Diagnostics) HasErrors() bool {
	for _, d := range ds {
		if d.Severity == Error {
			return true
		}
	}
	return false
}
