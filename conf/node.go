package conf

import "time"

// node is a key of the profile with its value, or an item of a list: what it holds, and where it stands.
type node struct {
	src   *source
	name  string // the key, unquoted; of an item, its list's
	key   span   // the key, its last part where it is dotted
	val   span   // the value; the header of a table that has one
	kind  kind
	value any     // of a scalar: string, int64, float64, bool or time.Time
	items []*node // of a list; of a table its keys, in the order of the file

	header bool             // a table with a [header] of its own
	byName map[string]*node // of a table, to find its items
	bad    bool             // a problem was reported: what follows from it is not
}

type kind int

const (
	scalarKind kind = iota
	listKind
	tableKind
)

// child returns the key of a table, or nil.
func (n *node) child(name string) *node { return n.byName[name] }

// find follows keys down from a table. It returns nil when one is missing.
func (n *node) find(path ...string) *node {
	for _, name := range path {
		if n = n.child(name); n == nil {
			return nil
		}
	}
	return n
}

// open returns a key of a table, and makes it a table that stands at place when it is new.
func (n *node) open(src *source, part keyPart, place span) *node {
	c := n.child(part.name)
	if c == nil {
		c = &node{src: src, name: part.name, key: part.span, val: place, kind: tableKind}
		n.add(c)
	}
	return c
}

func (n *node) add(c *node) {
	if n.byName == nil {
		n.byName = map[string]*node{}
	}
	n.byName[c.name] = c
	n.items = append(n.items, c)
}

// last returns the newest table of an array of tables, or the node itself.
func (n *node) last() *node {
	if n.kind == listKind && len(n.items) > 0 && n.items[len(n.items)-1].kind == tableKind {
		return n.items[len(n.items)-1]
	}
	return n
}

// fill puts the values that the parser found into the places that locate found. A value without a place, which would
// be a mistake of locate, gets that of its table.
func (n *node) fill(value any) {
	switch v := value.(type) {
	case map[string]any:
		n.kind = tableKind
		var found []*node
		for _, c := range n.items {
			if member, ok := v[c.name]; ok && n.byName[c.name] == c {
				c.fill(member)
				found = append(found, c)
			}
		}
		n.items = found
		for name, member := range v {
			if n.byName[name] == nil {
				c := &node{src: n.src, name: name, key: n.val, val: n.val}
				c.fill(member)
				n.add(c)
			}
		}
	case []map[string]any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = v[i]
		}
		n.fillList(list)
	case []any:
		n.fillList(v)
	default:
		n.kind, n.value, n.items = scalarKind, value, nil
	}
}

func (n *node) fillList(list []any) {
	n.kind = listKind
	items := make([]*node, len(list))
	for i, item := range list {
		if i < len(n.items) {
			items[i] = n.items[i]
		} else {
			items[i] = &node{src: n.src, name: n.name, key: n.key, val: n.val}
		}
		items[i].fill(item)
	}
	n.items = items
}

// merge lays a later file's table over an earlier one's: tables are merged key by key, everything else is replaced.
func (n *node) merge(later *node) {
	for _, c := range later.items {
		old := n.child(c.name)
		switch {
		case old == nil:
			n.add(c)
		case old.kind == tableKind && c.kind == tableKind:
			old.merge(c)
		default:
			*old = *c
		}
	}
}

// plain returns what the node holds as the parser would give it: a scalar, []any, or map[string]any.
func (n *node) plain() any {
	switch n.kind {
	case listKind:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = item.plain()
		}
		return list
	case tableKind:
		table := make(map[string]any, len(n.items))
		for _, item := range n.items {
			table[item.name] = item.plain()
		}
		return table
	}
	return n.value
}

// kindOf names the kind of a value in words: "a string".
func kindOf(value any) string {
	switch value.(type) {
	case string:
		return "a string"
	case int64:
		return "a number"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case time.Time:
		return "a date"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "something else"
}
