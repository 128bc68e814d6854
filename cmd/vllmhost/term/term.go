// Package term is the only code of the program that prints. Commands say what there is to say; this package decides how
// it looks on a terminal, in a file and in a pipe.
//
// The rules:
//
//   - Results go to stdout; errors, hints and warnings to stderr.
//   - Colour, symbols and redrawn lines only on a terminal that wants them (NO_COLOR, TERM=dumb) and, for symbols, in a
//     UTF-8 locale. Elsewhere: plain lines, no carriage returns, so that a log reads like the screen did.
//   - Nothing scrolls twice: what changes is redrawn in place, what is over is printed once.
//   - Whatever text passes through is made harmless (see [Escape]), so that no caller has to remember which string came
//     from a process name, a log line or a server.
//   - With JSONOnly, stdout is JSON and nothing else.
//   - Durations, sizes and rates have one form each (format.go).
//
// It knows nothing of units, swaps or the host.
package term

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// Printer writes to one pair of streams. Its methods may be called from several goroutines.
type Printer struct {
	// JSONOnly is the --json flag: Line, Text, Table and Steps print nothing, and Error prints an object on stdout.
	JSONOnly bool

	mu       sync.Mutex
	out, err stream
	live     []string // lines at the bottom of the terminal that are redrawn, see Steps
	failed   error    // the first error of a write
}

// stream is one of the two outputs and what it can show.
type stream struct {
	w       io.Writer
	tty     bool
	colour  bool
	unicode bool
	width   func() int // columns; only asked on a terminal
}

// New returns a Printer for the program's own streams. getenv is os.Getenv.
func New(out, err *os.File, getenv func(string) string) *Printer {
	return &Printer{out: open(out, getenv), err: open(err, getenv)}
}

// Plain returns a Printer for streams that are no terminals.
func Plain(out, err io.Writer) *Printer {
	return &Printer{out: stream{w: out}, err: stream{w: err}}
}

func open(f *os.File, getenv func(string) string) stream {
	// A dumb terminal cannot go back to the start of a line and clear it, so it is treated like a file.
	tty := term.IsTerminal(int(f.Fd())) && getenv("TERM") != "dumb"
	return stream{
		w:       f,
		tty:     tty,
		colour:  tty && getenv("NO_COLOR") == "", // no-color.org: any value but the empty one
		unicode: tty && utf8Locale(getenv),
		width: func() int {
			if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
				return columns
			}
			return 80
		},
	}
}

// utf8Locale reports whether the locale's character set is UTF-8; the variables' order is that of locale(7).
func utf8Locale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := getenv(name); value != "" {
			value = strings.ToLower(value)
			return strings.HasSuffix(value, "utf-8") || strings.HasSuffix(value, "utf8")
		}
	}
	return false
}

// Line prints one line to stdout. A newline in an argument does not start another one: it is escaped.
func (p *Printer) Line(format string, args ...any) {
	p.print(Escape(fmt.Sprintf(format, args...)) + "\n")
}

// Text prints a block of lines to stdout, such as a diff or a help page. A missing newline at its end is added.
func (p *Printer) Text(block string) {
	p.print(lines(block))
}

// Table prints rows under their headers in aligned columns to stdout. A row may be shorter than the headers. An empty
// headers slice leaves out the heading.
func (p *Printer) Table(headers []string, rows [][]string) {
	p.print(table(headers, rows))
}

// Warn prints a warning to stderr, also in JSONOnly mode.
func (p *Printer) Warn(format string, args ...any) {
	p.complain("warning", yellow, fmt.Sprintf(format, args...))
}

// Note prints one line to stderr, also in JSONOnly mode: what belongs to an error or a warning but is neither.
func (p *Printer) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(&p.err, Escape(fmt.Sprintf(format, args...))+"\n")
}

// NoteText is Text for stderr, also in JSONOnly mode.
func (p *Printer) NoteText(block string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(&p.err, lines(block))
}

// Error prints why the program ends with the exit status code, and what to type next: on stderr as
//
//	vllmhost: error: cannot ...
//	  hint: vllmhost ...
//
// and in JSONOnly mode as one object of schema vllmhost/error/v1 on stdout.
func (p *Printer) Error(err error, code int, hints ...string) {
	if p.JSONOnly {
		p.JSON(struct {
			Schema   string   `json:"schema"`
			Error    string   `json:"error"`
			Hints    []string `json:"hints"`
			ExitCode int      `json:"exit_code"`
		}{"vllmhost/error/v1", err.Error(), append([]string{}, hints...), code})
		return
	}
	p.complain("error", red, err.Error())
	for _, hint := range hints {
		p.Note("  hint: %s", hint)
	}
}

func (p *Printer) complain(kind string, c colour, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(&p.err, fmt.Sprintf("vllmhost: %s %s\n", p.err.paint(c, kind+":"), Escape(text)))
}

// Out returns stdout for libraries that write by themselves. What they write is not escaped.
func (p *Printer) Out() io.Writer { return writer{p, &p.out} }

// Err is Out for stderr.
func (p *Printer) Err() io.Writer { return writer{p, &p.err} }

// Failed returns the first error of writing the output, nil if there was none. That a reader has had enough (a pipe to
// head) is no error.
func (p *Printer) Failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(p.failed, syscall.EPIPE) {
		return nil
	}
	return p.failed
}

// print writes text for people to stdout.
func (p *Printer) print(text string) {
	if p.JSONOnly {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(&p.out, text)
}

// write writes text, which consists of whole lines, above the live ones. p.mu is held.
func (p *Printer) write(s *stream, text string) {
	live := p.live
	if s == &p.out {
		p.emit(s, p.lift()+text+p.lay(live)) // at once, lest it flickers
		return
	}
	p.emit(&p.out, p.lift())
	p.emit(s, text)
	p.emit(&p.out, p.lay(live))
}

// emit writes text as it is. p.mu is held.
func (p *Printer) emit(s *stream, text string) {
	if text == "" {
		return
	}
	if _, err := io.WriteString(s.w, text); err != nil && p.failed == nil {
		p.failed = err
	}
}

// writer is a stream of p as an io.Writer.
type writer struct {
	p *Printer
	s *stream
}

func (w writer) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.write(w.s, string(b))
	return len(b), nil
}

// colour is the parameter of an SGR sequence, see console_codes(4).
type colour string

const (
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
)

func (s *stream) paint(c colour, text string) string {
	if !s.colour || c == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
