package conf

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// table is one table of the profile while it is checked.
type table struct {
	l  *loader
	n  *node
	at place
}

// has reports whether the table has the key, with a value that is right as far as it was checked.
func (t table) has(key string) bool {
	n := t.n.child(key)
	return n != nil && !n.bad
}

// wrong reports what is wrong with the value of a key, if the table has it and nothing is wrong with it yet. Of a list
// each item counts for itself.
func (t table) wrong(key string, f *fault) {
	if f != nil && (t.has(key) || f.item > 0 && t.n.child(key) != nil) {
		t.l.wrongValue(t.n.child(key), t.at.key(key), f)
	}
}

// says reports a problem in words of its own, at the value of a key.
func (t table) says(s Severity, key, message, hint string) {
	n := t.n.child(key)
	if n == nil || n.bad {
		return
	}
	n.bad = s == Error
	t.l.severe(s, n.src, n.val, t.at.key(key), message, hint)
}

func (l *loader) table(root *node, at ...string) table {
	n := root.find(at...)
	if n == nil {
		n = &node{src: root.src, kind: tableKind}
	}
	return table{l: l, n: n, at: at}
}

// check reports what is wrong with a profile whose keys and types are right.
func (l *loader) check(root *node, p *Profile) {
	l.checkHost(l.table(root, "host"), &p.Host)
	for name, e := range p.Engines {
		l.table(root, "engine", name).checkEngine(e)
	}
	for name, m := range p.Models {
		l.table(root, "model", name).checkModel(m, &p.Host)
	}
	for _, name := range p.InstanceNames() {
		t := l.table(root, "instance", name)
		t.checkReferences(root, name, p)
		t.checkAddress(p.Instances[name])
		t.checkGPUs(p.Instances[name], p.Host.GPUs)
		t.checkInstance(p.Instances[name])
		t.checkLimits(p.Instances[name])
		l.checkHidden(root, name, p)
	}
	l.checkPorts(root, p)
}

var nameForm = lazily(`^[a-z0-9]([a-z0-9-]{0,24}[a-z0-9])?$`)

// checkName checks the NAME of a table such as [instance.NAME]. It becomes part of a unit's and a user's name, and
// a user's name has at most 31 bytes.
func (l *loader) checkName(n *node, at place) {
	if nameForm().MatchString(n.name) {
		return
	}
	hint := "1 to 26 of a-z, 0-9 and -, with no - at the ends"
	whole := true
	better := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r == '-' || r == '_' || r == '.' || r == ' ' || r == '/':
			return '-'
		}
		whole = false
		return -1
	}, n.name), "-")
	if whole && nameForm().MatchString(better) {
		hint += fmt.Sprintf(": %q, say", better)
	}
	l.on(n.src, n.key, at, fmt.Sprintf("%s cannot be the name of %s", quote(n.name), article(at[0])), hint)
}

// article puts "a" or "an" before a word.
func article(word string) string {
	if strings.ContainsRune("aeio", rune(word[0])) {
		return "an " + word
	}
	return "a " + word
}

func (l *loader) checkHost(t table, h *Host) {
	seen := map[string]bool{}
	for i, dir := range h.ModelDirs {
		f := pathFault(dir)
		switch {
		case f != nil:
		case systemDir(path.Clean(dir)):
			f = faultf("may not hold %s: vllmhost deletes in these directories", quote(dir)).hinted("a directory for models alone")
		case seen[path.Clean(dir)]:
			f = faultf("names %s twice", quote(dir))
		}
		if f != nil {
			t.wrong("model_dirs", f.at(i))
			continue
		}
		h.ModelDirs[i] = path.Clean(dir)
		seen[h.ModelDirs[i]] = true
	}
	if t.has("model_dirs") && len(h.ModelDirs) == 0 {
		t.wrong("model_dirs", faultf("is empty"))
	}
	t.checkSecretFile("hf_token_file", h.HFTokenFile)
}

// systemDir reports whether a directory, or what is in it, is the system's.
func systemDir(dir string) bool {
	if slices.Contains([]string{"/", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var", "/var/lib"}, dir) {
		return true
	}
	for _, system := range []string{"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"} {
		if within(dir, "/"+system) {
			return true
		}
	}
	return false
}

func (t table) checkEngine(e *Engine) {
	t.checkPath("command", &e.Command)
	t.checkPaths("path", e.Path)
	if i := slices.IndexFunc(e.Path, func(dir string) bool { return strings.Contains(dir, ":") }); i >= 0 {
		t.wrong("path", faultf("holds %s, and a colon ends a directory in PATH", quote(e.Path[i])).at(i))
	}
	t.checkEnv(e.Env)
}

var repoForm = lazily(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$`)

func (t table) checkModel(m *Model, host *Host) {
	t.checkPath("path", &m.Path)
	inside := slices.ContainsFunc(host.ModelDirs, func(dir string) bool { return within(m.Path, dir) && m.Path != dir })
	if t.has("path") && !inside {
		f := faultf("is outside of model_dirs (%s): vllmhost serves it, but will not fetch or remove it", strings.Join(host.ModelDirs, ", ")).
			hinted("add its directory to model_dirs of [host], if it should")
		f.warning = true
		t.wrong("path", f)
	}
	if t.has("repo") && !repoForm().MatchString(m.Repo) {
		f := faultf("wants OWNER/NAME, got %s", quote(m.Repo))
		for _, prefix := range []string{"https://huggingface.co/", "https://hf.co/"} {
			if rest, ok := strings.CutPrefix(m.Repo, prefix); ok && repoForm().MatchString(rest) {
				f.hinted("write %q", rest)
			}
		}
		t.wrong("repo", f)
	}
	if t.has("revision") {
		switch {
		case t.n.child("repo") == nil:
			t.wrong("revision", faultf("needs repo").hinted("a revision is one of a repository on the Hub"))
		case !revisionForm().MatchString(m.Revision) || strings.Contains(m.Revision, ".."):
			t.wrong("revision", faultf("cannot be a branch, tag or commit: %s", quote(m.Revision)))
		}
	}
}

var revisionForm = lazily(`^[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}$`)

// checkReferences checks that the model and the engine of an instance exist.
func (t table) checkReferences(root *node, name string, p *Profile) {
	in := p.Instances[name]
	if p.Engines[in.Engine] == nil && !wholeBad(root, "engine") {
		t.undefined("engine", fmt.Sprintf("instance %q uses engine %s", name, quote(in.Engine)), in.Engine, namesOf(p.Engines))
	}
	if p.Models[in.Model] == nil && !wholeBad(root, "model") {
		t.undefined("model", fmt.Sprintf("instance %q serves model %s", name, quote(in.Model)), in.Model, namesOf(p.Models))
	}
}

// wholeBad reports whether a top-level key is there and could not be read at all.
func wholeBad(root *node, key string) bool {
	n := root.child(key)
	return n != nil && n.bad
}

func (t table) undefined(key, message, name string, known []string) {
	hint := fmt.Sprintf("%ss: %s", key, strings.Join(known, ", "))
	if len(known) == 0 {
		hint = fmt.Sprintf("there are none: write [%s.%s]", key, name)
		if !nameForm().MatchString(name) {
			hint = fmt.Sprintf("there are none: write [%s.NAME]", key)
		}
	}
	if s := Suggest(name, known); s != "" && len(known) > 1 {
		hint = fmt.Sprintf("did you mean %q? %s", s, hint)
	}
	t.says(Error, key, message+", which is not defined", hint)
}

func namesOf[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
