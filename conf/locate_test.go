package conf

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

// locate finds every key and value of a valid text, each where it stands: what stands there, read alone, is the same.
func TestLocate(t *testing.T) {
	for _, text := range []string{
		"a = 1\nb.c = 'x'\n[t]\n[t.u]\nd = true\n",
		"\"q.k\" = 1\n'r' . s = [1, [2, 3], { x = 1 }]\n",
		"[[l]]\na = 1\n[l.sub]\nb = 2\n[[l]]\na = 3\n[[l.more]]\nx = 1\n",
		"t = { a = 1, # c }\n b = { c = \"}\" },\n}\n",
		"s = \"\"\"a\"b\"\"c\\\"\"\"\"\"\nr = '''x''''\ne = \"\\\"\\\\\"\nd = 1979-05-27 07:32:00 # date\n",
		"\"\\u00e9\\\\\" = 1\nx = [\n 1, # ]\n 2,\n]\n",
	} {
		checkLocated(t, text)
	}
}

// checkLocated compares what locate found in a text with what the parser says about it.
func checkLocated(t *testing.T, text string) {
	t.Helper()
	src := newSource("test.toml", text)
	root, tooDeep := locate(src)
	values, err := parse(text)
	if err != nil || tooDeep != nil {
		return
	}
	compareLocated(t, src, root, values, "")
}

func compareLocated(t *testing.T, src *source, n *node, value any, path string) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		var found []string
		for _, c := range n.items {
			found = append(found, c.name)
			key := src.text[c.key.start:c.key.end]
			if unquoteKeyLike(key) != c.name {
				t.Errorf("%s: key %q stands at %q in\n%s", path, c.name, key, src.text)
			}
		}
		var want []string
		for name := range v {
			want = append(want, name)
		}
		slices.Sort(found)
		slices.Sort(want)
		if !slices.Equal(found, want) {
			t.Errorf("%s: keys %q, want %q in\n%s", path, found, want, src.text)
			return
		}
		for name, member := range v {
			compareLocated(t, src, n.child(name), member, path+"."+name)
		}
	case []map[string]any:
		if len(n.items) != len(v) {
			t.Errorf("%s: %d tables, want %d in\n%s", path, len(n.items), len(v), src.text)
			return
		}
		for i := range v {
			compareLocated(t, src, n.items[i], v[i], fmt.Sprintf("%s[%d]", path, i))
		}
	case []any:
		if len(n.items) != len(v) {
			t.Errorf("%s: %d items, want %d in\n%s", path, len(n.items), len(v), src.text)
			return
		}
		for i := range v {
			compareLocated(t, src, n.items[i], v[i], fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		alone := "v = " + src.text[n.val.start:n.val.end]
		got, err := parse(alone)
		if err != nil || !sameValue(got["v"], value) {
			t.Errorf("%s: at its place stands %q (%v), want %v in\n%s", path, alone, err, value, src.text)
		}
	}
}

func sameValue(a, b any) bool {
	x, isFloat := a.(float64)
	y, _ := b.(float64)
	return reflect.DeepEqual(a, b) || isFloat && x != x && y != y
}

func unquoteKeyLike(key string) string {
	var v map[string]any
	if _, err := toml.Decode(key+" = 1", &v); err != nil {
		return key
	}
	for k := range v {
		return k
	}
	return key
}

// Load never panics, and every problem has a place in a file that exists; locate agrees with the parser.
func FuzzLoad(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*/*.toml")
	if err != nil || len(seeds) == 0 {
		f.Fatal(seeds, err)
	}
	for _, name := range seeds {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "")
	}
	f.Add("schema = 1\n", "[instance.a]\nport = 1\n")
	f.Fuzz(func(t *testing.T, text, layer string) {
		dir := t.TempDir()
		profile := filepath.Join(dir, "host.toml")
		write(t, profile, text)
		if layer != "" {
			write(t, filepath.Join(dir, "host.d/10.toml"), layer)
		}
		p, diags := load(profile, files{root: dir, owner: uint32(os.Getuid())})
		if (p == nil) != diags.HasErrors() {
			t.Errorf("profile %v, %s", p, diags)
		}
		checkPlaces(t, diags)
		if out := diags.String(); strings.ContainsFunc(out, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) {
			t.Errorf("control characters reach the terminal: %q", out)
		}
		if p != nil {
			for _, a := range p.InstanceNames() {
				for _, b := range p.InstanceNames() {
					p.Conflicts(a, b)
				}
			}
		}
		if strings.HasPrefix(text, "\ufeff") || notText(text) >= 0 {
			return
		}
		checkLocated(t, text)
	})
}

// Without duplicates in a list the order of the keys is that of the file.
func TestOrder(t *testing.T) {
	src := newSource("t", "z = 1\n[t]\nb = 1\na = 2\n[t.c]\n[y]\n")
	root, _ := locate(src)
	values, err := parse(src.text)
	if err != nil {
		t.Fatal(err)
	}
	root.fill(values)
	var order []string
	for _, n := range append(root.items, root.child("t").items...) {
		order = append(order, n.name)
	}
	if diff := cmp.Diff([]string{"z", "t", "y", "b", "a", "c"}, order); diff != "" {
		t.Error(diff)
	}
}
