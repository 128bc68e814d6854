package unitgen

import (
	"bytes"
	"slices"
	"strings"
)

// directive is one setting of a unit file: its section's header, key and value.
type directive struct{ section, key, value string }

// parse reads a unit file as systemd.syntax(7) describes it: comments and empty lines go, a backslash at the end of a
// line joins the next one with a space.
func parse(text []byte) []directive {
	var ds []directive
	section, joined := "", ""
	for _, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" && joined == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";") {
			continue
		}
		if head, continues := strings.CutSuffix(strings.TrimRight(line, " \t\r"), `\`); continues {
			joined += head + " "
			continue
		}
		line, joined = joined+line, ""
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "[") {
			section = trimmed
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok {
			ds = append(ds, directive{section, strings.TrimSpace(key), strings.TrimSpace(value)})
		}
	}
	return ds
}

// meaning is what a unit makes systemd and vllmhost do: neither comments and layout nor words for people.
func meaning(text []byte) []directive {
	return slices.DeleteFunc(parse(text), func(d directive) bool {
		switch d.section + d.key {
		case "[Unit]Description", "[Unit]Documentation", sectionHeader + "Hash", sectionHeader + "Repo":
			return true
		}
		return false
	})
}

// Same reports whether two units mean the same: they differ at most in comments, layout, Description= and
// Documentation=. The order of different keys does not matter, that of repeated ones does.
func Same(a, b []byte) bool { return len(Changes(a, b)) == 0 }

// Change is a setting that differs between two units.
type Change struct {
	Section string   // "[Service]"
	Key     string   // "Environment"
	Old     []string // values of the old unit that the new one lacks
	New     []string // values of the new unit that the old one lacks
}

// Changes lists what differs in meaning between two units, in the new unit's order, settings that went last. When only
// the order of a repeated key's values changed, Old and New hold all of them.
func Changes(old, new []byte) []Change {
	if bytes.Equal(old, new) {
		return nil
	}
	before, after := meaning(old), meaning(new)
	var changes []Change
	seen := map[[2]string]bool{}
	for _, d := range slices.Concat(after, before) {
		id := [2]string{d.section, d.key}
		if seen[id] {
			continue
		}
		seen[id] = true
		a, b := values(before, id), values(after, id)
		if slices.Equal(a, b) {
			continue
		}
		c := Change{Section: d.section, Key: d.key, Old: without(a, b), New: without(b, a)}
		if len(c.Old)+len(c.New) == 0 {
			c.Old, c.New = a, b
		}
		changes = append(changes, c)
	}
	return changes
}

func values(ds []directive, id [2]string) []string {
	var vs []string
	for _, d := range ds {
		if d.section == id[0] && d.key == id[1] {
			vs = append(vs, quoteAll(splitWords(d.value)))
		}
	}
	return vs
}

// without returns the values of a beyond those that b has too, each as often as it is extra.
func without(a, b []string) []string {
	rest := slices.Clone(b)
	var extra []string
	for _, v := range a {
		if i := slices.Index(rest, v); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
			continue
		}
		extra = append(extra, v)
	}
	return extra
}

// Lines shows a change the way a diff does: "- Key=old", "+ Key=new". Of a long list of words only those that differ
// are shown, with the word before them.
func (c Change) Lines() []string {
	old, new := slices.Clone(c.Old), slices.Clone(c.New)
	if len(old) == 1 && len(new) == 1 {
		old[0], new[0] = shorten(splitWords(old[0]), splitWords(new[0]))
	}
	var lines []string
	for _, v := range old {
		lines = append(lines, "- "+c.Key+"="+v)
	}
	for _, v := range new {
		lines = append(lines, "+ "+c.Key+"="+v)
	}
	return lines
}

// shorten leaves out what two lists of words have in common at both ends, but for one word before the difference.
func shorten(a, b []string) (string, string) {
	const longEnough = 4
	if max(len(a), len(b)) <= longEnough {
		return quoteAll(a), quoteAll(b)
	}
	start := 0
	for start < min(len(a), len(b)) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < min(len(a), len(b))-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	cut := func(words []string) string {
		from := max(0, start-1)
		s := quoteAll(words[from : len(words)-end])
		if from > 0 {
			s = "… " + s
		}
		if end > 0 {
			s += " …"
		}
		return s
	}
	return cut(a), cut(b)
}
