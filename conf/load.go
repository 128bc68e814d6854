package conf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Schema is the version of the profile's format that this program reads.
const Schema = 1

// Limits on what is read.
const (
	maxProfile  = 1 << 20 // bytes of one file; a host with a hundred instances needs 50 kB
	maxProblems = 500     // more are counted, not listed
)

// Load reads the profile at path (host.toml) and the files of the directory beside it with the same name and ".d"
// instead of ".toml" (host.d/*.toml, in name order). Tables are merged key by key; of other values the last file's
// wins. It reports all problems at once. The Profile is nil exactly when diags.HasErrors().
//
// Load also looks at the files with secrets that the profile names: who may read and who may replace them, and which
// variables an env_file sets. Without the right to see them it warns instead.
func Load(path string) (p *Profile, diags Diagnostics) {
	return load(path, files{root: "/", owner: 0})
}

func load(path string, secrets files) (*Profile, Diagnostics) {
	l := &loader{secrets: secrets}
	root := l.read(path)
	if root == nil {
		return nil, l.result()
	}
	p := &Profile{Host: defaultHost(), Files: l.files}
	if l.checkSchema(root) {
		l.decode(root, p)
		if !l.partial {
			p.fillDefaults(root)
			l.check(root, p)
		}
	}
	if l.diags.HasErrors() {
		p = nil
	}
	return p, l.result()
}

// loader collects what Load finds.
type loader struct {
	secrets files
	files   []string // read, in merge order
	partial bool     // a file could not be read: what it may define is not missed
	diags   Diagnostics
	more    int // problems beyond maxProblems
}

func (l *loader) result() Diagnostics {
	ds := l.diags.sorted(l.files)
	if l.more > 0 {
		ds = append(ds, Diagnostic{Severity: Error, Pos: Pos{File: l.files[0]},
			Message: fmt.Sprintf("%d more problems are not shown", l.more)})
	}
	return ds
}

// read reads and merges all the files. It returns nil when none could be read.
func (l *loader) read(path string) (merged *node) {
	layers, err := layersOf(path)
	l.files = append([]string{path}, layers...)
	if err != nil {
		l.unreadable(layerDir(path), "cannot list the directory", err)
	}
	for _, name := range l.files {
		layer := l.readFile(name)
		switch {
		case layer == nil:
			l.partial = true
		case merged == nil:
			merged = layer
		default:
			merged.merge(layer)
		}
	}
	return merged
}

// layerDir names the directory of the files that are laid over a profile.
func layerDir(path string) string { return strings.TrimSuffix(path, ".toml") + ".d" }

func layersOf(path string) (names []string, err error) {
	dir := layerDir(path)
	entries, err := os.ReadDir(dir) // in name order
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".toml") && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, err
}

// readFile returns the keys of one file, or nil after reporting why there are none.
func (l *loader) readFile(name string) *node {
	data, err := readRegular(name, maxProfile)
	if err != nil {
		l.unreadable(name, "cannot read the profile", err)
		return nil
	}
	src := newSource(name, strings.TrimPrefix(string(data), "\ufeff")) // a byte order mark
	if at := notText(src.text); at >= 0 {
		l.on(src, span{at, at + 1}, nil, fmt.Sprintf("not a text file: it holds a byte 0x%02x", src.text[at]),
			"a profile is TOML in UTF-8")
		return nil
	}
	root, tooDeep := locate(src)
	if tooDeep != nil {
		l.on(src, *tooDeep, nil, fmt.Sprintf("nested more than %d levels deep", maxDepth), "")
		return nil
	}
	values, err := parse(src.text)
	if err != nil {
		l.syntax(src, root, err)
		return nil
	}
	root.fill(values)
	return root
}

// unreadable reports a file or directory that cannot be read.
func (l *loader) unreadable(name, what string, err error) {
	d := Diagnostic{Severity: Error, Pos: Pos{File: name}, Message: fmt.Sprintf("%s: %v", what, cause(err))}
	switch {
	case errors.Is(err, os.ErrNotExist):
		d.Hint = "write one, or name another with --profile"
	case errors.Is(err, os.ErrPermission):
		d.Hint = "run as root"
	}
	l.report(d)
}

// checkSchema reports whether the profile is of a version that this program knows, as far as it says.
func (l *loader) checkSchema(root *node) bool {
	n := root.child("schema")
	if n == nil {
		return true // reported with other missing keys
	}
	version, ok := n.value.(int64)
	if !ok || version == Schema {
		return true
	}
	if version > Schema {
		l.wrongValue(n, place{"schema"}, faultf("is %d, which this vllmhost does not know yet", version).
			hinted("it reads schema %d; a newer vllmhost reads this one", Schema))
		return false
	}
	l.wrongValue(n, place{"schema"}, faultf("is %d, which never existed", version).hinted("write schema = %d", Schema))
	return true
}
