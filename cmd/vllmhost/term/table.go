package term

import (
	"strings"
	"unicode"
)

// gap is what stands between two columns.
const gap = "  "

// table lays out rows under their headers: columns as wide as their widest cell, no blanks at the end of a line.
func table(headers []string, rows [][]string) string {
	if len(headers) > 0 {
		rows = append([][]string{headers}, rows...)
	}
	escaped := make([][]string, len(rows))
	var widths []int
	for i, row := range rows {
		for column, cell := range row {
			cell = Escape(cell)
			escaped[i] = append(escaped[i], cell)
			if column == len(widths) {
				widths = append(widths, 0)
			}
			widths[column] = max(widths[column], width(cell))
		}
	}
	var b strings.Builder
	for _, row := range escaped {
		var line strings.Builder
		for column, cell := range row {
			line.WriteString(pad(cell, widths[column]) + gap)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// pad fills s with blanks to n columns.
func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-width(s)))
}

// clip cuts s to at most n columns; what was cut is marked with "...".
func clip(s string, n int) string {
	if width(s) <= n {
		return s
	}
	const mark = "..."
	columns := 0
	for i, r := range s {
		if columns += runeWidth(r); columns > n-len(mark) {
			return s[:i] + mark
		}
	}
	return s
}

// width returns the number of columns a terminal uses for s, which holds no control characters.
func width(s string) int {
	columns := 0
	for _, r := range s {
		columns += runeWidth(r)
	}
	return columns
}

// runeWidth follows Unicode Standard Annex 11 closely enough for names and log lines: marks that combine with the
// character before them take no column, East Asian scripts, full-width forms and emoji take two.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana, unicode.Yi),
		r >= 0x3000 && r <= 0x303e, r >= 0xff01 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff:
		return 2
	}
	return 1
}
