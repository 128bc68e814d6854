package conf

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// report adds a problem. Those beyond maxProblems are only counted.
func (l *loader) report(d Diagnostic) {
	if !l.full() {
		l.diags = append(l.diags, d)
	}
}

// full counts a problem for which there is no room any more.
func (l *loader) full() bool {
	if len(l.diags) < maxProblems {
		return false
	}
	l.more++
	return true
}

// on reports an error at a place of a file.
func (l *loader) on(src *source, where span, key place, message, hint string) {
	l.severe(Error, src, where, key, message, hint)
}

func (l *loader) severe(s Severity, src *source, where span, key place, message, hint string) {
	if l.full() {
		return // finding the place takes the longest
	}
	d := Diagnostic{Severity: s, Pos: src.pos(where), Message: message, Hint: hint}
	if len(key) > 0 {
		d.Key = key.String()
	}
	d.Source = src.line(d.Pos.Line)
	l.report(d)
}

// onTable reports an error about a table as a whole: at its header.
func (l *loader) onTable(n *node, at place, message, hint string) {
	l.on(n.src, n.val, at, message, hint)
}

// wrongValue reports what is wrong with the value of a key, or of an item of its list, once: later problems with the
// same value are its consequences.
func (l *loader) wrongValue(n *node, at place, err error) {
	var f *fault
	if !errors.As(err, &f) {
		f = &fault{message: err.Error()}
	}
	where, severity := n, Error
	if f.item > 0 && f.item <= len(n.items) {
		where = n.items[f.item-1]
	}
	if where.bad {
		return
	}
	if f.warning {
		severity = Warning
	} else {
		n.bad, where.bad = true, true
	}
	l.severe(severity, where.src, where.val, at, fmt.Sprintf("%s %s", quote(n.name), f.message), f.hint)
}

// unknownKey reports a key that does not exist in its table, with the one that was probably meant.
func (l *loader) unknownKey(n *node, table reflect.Type, at place) {
	hint := didYouMean(n.name, keysOf(table), "")
	switch {
	case hint != "":
	case dotted(n, at):
		hint = `a dot begins a new table, and names have none: use "-"`
	default:
		hint = elsewhere(n.name, table)
	}
	l.on(n.src, n.key, at.key(n.name), fmt.Sprintf("unknown key %s %s", quote(n.name), at.in()), hint)
}

// dotted reports whether an unknown table comes from a dot in a name: [model.kimi-k2.5].
func dotted(n *node, at place) bool { return n.kind == tableKind && n.header && len(at) == 2 }

// elsewhere says to which table a key belongs that stands in the wrong one.
func elsewhere(key string, table reflect.Type) string {
	for _, t := range []struct {
		header string
		table  reflect.Type
	}{
		{"[host]", reflect.TypeFor[Host]()},
		{"[engine.NAME]", reflect.TypeFor[Engine]()},
		{"[model.NAME]", reflect.TypeFor[Model]()},
		{"[instance.NAME]", reflect.TypeFor[Instance]()},
		{"[instance.NAME.probe]", reflect.TypeFor[Probe]()},
	} {
		if t.table != table && slices.Contains(keysOf(t.table), key) {
			return fmt.Sprintf("it is a key of %s", t.header)
		}
	}
	switch table {
	case reflect.TypeFor[Instance]():
		return "an option of vLLM goes into args"
	case reflect.TypeFor[Profile]():
		return "there are [host], [engine.NAME], [model.NAME] and [instance.NAME]"
	}
	return ""
}

// requiredHint says what a missing key holds.
func requiredHint(at place, key string) string {
	switch {
	case len(at) == 0:
		return fmt.Sprintf("begin the file with: schema = %d", Schema)
	case key == "command":
		return `command = "/opt/vllm/bin/vllm", say`
	case key == "path":
		return fmt.Sprintf("path = %q, say", "/srv/models/"+at[len(at)-1])
	}
	return fmt.Sprintf("%s = the NAME of [%s.NAME]", key, key)
}
