package term

import (
	"strings"
	"time"
)

// Steps shows the steps of an operation, one line each. On a terminal the line of the running step is redrawn with its
// time and detail; elsewhere a step has its line when it is over.
//
//	s := p.Steps("Ctrl-C leaves it running.")
//	defer s.Close()
//	s.Start("stop", began)
//	s.Detail("3 of 9 processes gone")
//	s.Done("vllm-minimax.service stopped, 9 processes gone", ended)
//
// Times come from the caller, because an operation that is watched again has steps that are over already.
type Steps struct {
	p      *Printer
	footer string

	// Below: guarded by p.mu.
	running bool
	undo    bool
	name    string
	detail  string
	since   time.Time
	frame   int

	quit, gone chan struct{} // end of the goroutine that redraws; nil when there is none
}

// Columns of a step's line.
const (
	nameWidth     = len("preflight")
	durationWidth = len(" 59m59s")
)

// redraw is how often the running line changes. The eye takes ten a second for movement.
const redraw = 100 * time.Millisecond

// Steps begins to show steps. The footer stays below the running step on a terminal and is not shown elsewhere; it may
// be empty. Close must be called.
func (p *Printer) Steps(footer string) *Steps {
	s := &Steps{p: p, footer: Escape(footer)}
	if p.out.tty && !p.JSONOnly {
		s.quit, s.gone = make(chan struct{}), make(chan struct{})
		go s.animate()
	}
	return s
}

// Start begins a step.
func (s *Steps) Start(name string, at time.Time) { s.begin(name, at, false) }

// Undo begins taking a step back. Its line carries the mark of a rollback when it is over.
func (s *Steps) Undo(name string, at time.Time) { s.begin(name, at, true) }

// Detail says what the running step is doing at the moment.
func (s *Steps) Detail(text string) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.detail = Escape(text)
	s.redraw()
}

// Done ends the running step: it did what it should, and text is the outcome.
func (s *Steps) Done(text string, at time.Time) { s.end(done, text, at) }

// Fail ends the running step: it did not, and text is the reason.
func (s *Steps) Fail(text string, at time.Time) { s.end(failed, text, at) }

// Skip ends the running step: there was nothing to do, and text is the reason.
func (s *Steps) Skip(text string, at time.Time) { s.end(skipped, text, at) }

// Close takes the running line and the footer off the terminal. Called again, it does nothing.
func (s *Steps) Close() {
	if s.quit != nil {
		close(s.quit)
		<-s.gone
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.running = false
	s.redraw()
	s.quit = nil
}

func (s *Steps) begin(name string, at time.Time, undo bool) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.name, s.since, s.undo, s.detail, s.running = Escape(name), at, undo, "", true
	s.redraw()
}

func (s *Steps) end(m mark, text string, at time.Time) {
	if m == done && s.undo {
		m = undone
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.running = false
	s.redraw()
	if !s.p.JSONOnly {
		out := &s.p.out
		s.p.write(out, s.line(out.paint(m.colour(), m.text(out)), at.Sub(s.since), Escape(text))+"\n")
	}
}

// line is a step's line without its newline.
func (s *Steps) line(mark string, took time.Duration, text string) string {
	duration := Duration(took)
	duration = strings.Repeat(" ", max(0, durationWidth-len(duration))) + duration
	return strings.TrimRight("  "+mark+" "+pad(s.name, nameWidth)+duration+"   "+text, " ")
}

// animate redraws the running line until Close.
func (s *Steps) animate() {
	defer close(s.gone)
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-ticker.C:
			s.p.mu.Lock()
			s.frame++
			s.redraw()
			s.p.mu.Unlock()
		}
	}
}

// redraw brings the live lines up to date. s.p.mu is held.
func (s *Steps) redraw() {
	if s.quit == nil {
		return
	}
	var lines []string
	if s.running {
		columns := s.p.out.width() - 1 // a full line would wrap on some terminals
		lines = append(lines,
			clip(s.line(spinner(s.frame, s.p.out.unicode), time.Since(s.since), s.detail), columns))
		if s.footer != "" {
			lines = append(lines, "", clip(s.footer, columns))
		}
	}
	s.p.emit(&s.p.out, s.p.lift()+s.p.lay(lines))
}

// lay makes lines the live ones and returns what puts them at the bottom of the terminal; the cursor then stands at the
// end of the last one. p.mu is held.
func (p *Printer) lay(lines []string) string {
	p.live = lines
	return strings.Join(lines, "\n")
}

// lift returns what takes the live lines away and leaves the cursor where the first one began. p.mu is held.
func (p *Printer) lift() string {
	if len(p.live) == 0 {
		return ""
	}
	// console_codes(4): CSI A moves up, CSI J clears from the cursor to the end of the screen.
	up := strings.Repeat("\x1b[A", len(p.live)-1)
	p.live = nil
	return "\r" + up + "\x1b[J"
}
