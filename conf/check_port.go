package conf

import (
	"fmt"
	"slices"
	"strings"
)

// checkPorts warns of instances that share a port or socket for no reason: what shares GPUs cannot run together
// anyway. Where neither uses a GPU, as on a CPU host, the port is how they take turns.
func (l *loader) checkPorts(root *node, p *Profile) {
	var before []string // in the order of the files
	for _, n := range l.instancesInOrder(root, p) {
		t := table{l, n, place{"instance", n.name}}
		if gpus := n.child("gpus"); gpus != nil && gpus.bad {
			continue
		}
		in := p.Instances[n.name]
		var others []string
		for _, other := range before {
			o := p.Instances[other]
			if in.sameAddress(o) != "" && !in.contested(o).Any() && (in.GPUs.Any() || o.GPUs.Any()) {
				others = append(others, other)
			}
		}
		before = append(before, n.name)
		if len(others) > 0 {
			t.sharedPort(root, in, others, p)
		}
	}
}

func (t table) sharedPort(root *node, in *Instance, others []string, p *Profile) {
	key, what := "port", fmt.Sprintf("port %d", in.Port)
	if in.UDS != "" {
		key, what = "uds", in.UDS
	}
	var names []string
	const most = 3
	for i, other := range others {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(others)-most))
			break
		}
		names = append(names, fmt.Sprintf("%q (%s)", other, t.lineOf(root.find("instance", other, key), t.n.child(key))))
	}
	pair := "the two"
	if len(names) > 1 {
		pair = "they"
	}
	but := "but no GPU"
	if o := p.Instances[others[0]]; in.GPUs.Overlaps(o.GPUs) {
		but = "though they may share GPUs"
	}
	t.says(Warning, key, fmt.Sprintf("%q shares %s with %s %s: %s can never run together",
		t.at[1], what, joined(names), but, pair), "if they should, give one of them another "+key)
}

// joined lists words as a sentence does: a, b and c.
func joined(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// lineOf names a place as seen from another: with its file only where that is a different one.
func (t table) lineOf(n, from *node) string {
	at := n.src.pos(n.val)
	if n.src == from.src {
		return fmt.Sprintf("line %d", at.Line)
	}
	return fmt.Sprintf("%s:%d", escape(at.File), at.Line)
}

// instancesInOrder returns the tables of the instances that were read, in the order of the files.
func (l *loader) instancesInOrder(root *node, p *Profile) []*node {
	var list []*node
	if n := root.child("instance"); n != nil {
		list = slices.DeleteFunc(slices.Clone(n.items), func(n *node) bool { return p.Instances[n.name] == nil })
	}
	slices.SortStableFunc(list, func(a, b *node) int {
		return slices.Index(l.files, a.src.name) - slices.Index(l.files, b.src.name)
	})
	return list
}
