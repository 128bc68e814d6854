// Package models tells the truth about a model directory: whether every file that vLLM would load is there and as long as
// its own header says.
//
// The truth comes from the files (the index, the safetensors headers, the sizes), never from counting names. It reads
// headers, not weights: whether the bytes in between are the right ones takes their hashes. It needs no privileges and
// writes nothing, so that an engine's own user can run it. Directories are taken for hostile: only regular files are opened,
// links may not lead out, and no file makes it use much memory.
package models

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// State is what a directory is worth.
type State string

// The states of a directory. A file that is not there makes it incomplete, one that is there and not what it must be makes
// it corrupt, and corrupt is worse.
const (
	Missing       State = "missing"        // no such directory, or an empty one
	Complete      State = "complete"       // everything is there, as far as Report.Level proves
	Incomplete    State = "incomplete"     // files are absent or may not be read
	Corrupt       State = "corrupt"        // files are cut, damaged or something else
	UnknownFormat State = "unknown-format" // no weights in a format that can be checked
)

// Format is how the weights are stored.
type Format string

// The formats of weights. Mistral's are the consolidated*.safetensors, which vLLM prefers wherever there are any
// (load_format "auto").
const (
	Safetensors Format = "safetensors"
	Mistral     Format = "mistral"
	GGUF        Format = "gguf"
	PyTorch     Format = "pytorch" // cannot be checked
)

// Level is how much was proven.
type Level int

// The levels, each including the ones before it.
const (
	LevelNone  Level = iota
	LevelNames       // the files that belong to the model are there and begin as their format does
	LevelSizes       // each has the length its header says, and the tensors the index places in it
)

// Problem is what is wrong with one file.
type Problem struct {
	File  string `json:"file"`  // relative to the directory; "" for the directory itself. Foreign text, not escaped
	Why   string `json:"why"`   // a predicate: "is missing", "is 12 bytes, its header needs 48"
	State State  `json:"state"` // what this alone makes of the directory
}

// String is the file and what is wrong with it: "model-00003-of-00064.safetensors is missing".
func (p Problem) String() string {
	if p.File == "" {
		return "the directory " + p.Why
	}
	return plain(p.File) + " " + p.Why
}

// Report is what [Check] found out.
type Report struct {
	Dir      string    `json:"dir"`
	State    State     `json:"state"`
	Format   Format    `json:"format"`
	Level    Level     `json:"level"`
	Indexed  bool      `json:"indexed"`  // an index says which files belong to the model
	Files    int       `json:"files"`    // weight files that are there and right
	Want     int       `json:"want"`     // weight files that belong to the model
	Bytes    int64     `json:"bytes"`    // length of the weight files that are there
	Problems []Problem `json:"problems"` // in order of file names, empty if and only if State is Complete
}

// Check looks at a model directory, or at one GGUF file with the other parts of its split. The error is for what keeps it
// from looking at all (a directory that may not be read, ctx); whatever is wrong with the model is in the Report.
func Check(ctx context.Context, dir string) (Report, error) {
	c := &checker{ctx: ctx, report: Report{Dir: dir}}
	if err := c.run(); err != nil {
		return Report{}, fmt.Errorf("cannot check the model %q: %w", dir, err)
	}
	return c.report, nil
}

// Summary is the size of it in a few words: "64 of 64 shards, 595 GB".
func (r Report) Summary() string {
	noun := "files"
	if r.Indexed {
		noun = "shards"
	}
	switch {
	case r.Want == 0:
		return "no weights"
	case r.Want == 1 && r.Files == 1:
		return "1 file, " + size(r.Bytes)
	default:
		return fmt.Sprintf("%d of %d %s, %s", r.Files, r.Want, noun, size(r.Bytes))
	}
}

// String is the state, the summary and the first problems, in one line.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", r.State, r.Summary())
	const shown = 3
	for _, p := range r.Problems[:min(len(r.Problems), shown)] {
		b.WriteString("; " + p.String())
	}
	if more := len(r.Problems) - shown; more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

// size writes a number of bytes for people, in decimal units and three digits: "595 GB".
func size(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n)/1000, 0
	for value >= 999.5 && unit < 4 {
		value, unit = value/1000, unit+1
	}
	digits := 2
	switch {
	case value >= 99.95:
		digits = 0
	case value >= 9.995:
		digits = 1
	}
	return strconv.FormatFloat(value, 'f', digits, 64) + " " + []string{"kB", "MB", "GB", "TB", "PB"}[unit]
}

// count writes a number exactly, with commas between thousands: "4,984,102,400".
func count[T int | int64 | uint64](n T) string {
	digits := strconv.FormatUint(uint64(n), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// plain is a foreign name as it is, or quoted where that is not the same: with control characters, spaces at its ends, ...
func plain(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || strings.TrimSpace(name) != name || name == "" {
		return quoted
	}
	return name
}
