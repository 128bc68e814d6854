package term

// mark stands before a step that is over.
type mark int

const (
	done mark = iota
	failed
	undone
	skipped
)

// text is a symbol where it can be shown and a word of one width elsewhere.
func (m mark) text(s *stream) string {
	if s.unicode {
		return [...]string{done: "✓", failed: "✗", undone: "↩", skipped: "-"}[m]
	}
	return [...]string{done: "ok  ", failed: "FAIL", undone: "undo", skipped: "skip"}[m]
}

func (m mark) colour() colour {
	return [...]colour{done: green, failed: red, undone: yellow, skipped: ""}[m]
}

// spinner is the mark of the running step, as wide as the marks of the others.
func spinner(frame int, unicode bool) string {
	if unicode {
		frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
		return string(frames[frame%len(frames)])
	}
	return `|/-\`[frame%4:frame%4+1] + "   "
}
