package conf

import (
	"path"
	"strings"
	"syscall"
	"unicode"
)

// maxPath is the most bytes of a path (PATH_MAX, without the NUL).
const maxPath = 4095

// oneLine says what keeps a text from being a name, a path or a description in a unit file. What cannot be seen, or
// changes the order of what is seen, could mislead the reader of a message too.
func oneLine(text string) *fault {
	for _, r := range text {
		switch {
		case unicode.IsControl(r):
			return faultf("holds a control character: %s", quote(text))
		case !unicode.IsPrint(r):
			return faultf("holds an invisible character: %s", quote(text))
		}
	}
	return nil
}

// pathFault says what keeps a text from being a path in a unit file.
func pathFault(p string) *fault {
	switch {
	case p == "":
		return faultf("is empty")
	case oneLine(p) != nil:
		return oneLine(p)
	case strings.HasPrefix(p, "~"):
		return faultf("must be absolute: %s", quote(p)).hinted(`"~" means nothing to a service; write the whole path`)
	case !path.IsAbs(p):
		return faultf("must be absolute: %s", quote(p)).hinted(`begin it with "/"`)
	case len(p) > maxPath:
		return faultf("has %d bytes, and a path at most %d", len(p), maxPath)
	}
	for _, e := range strings.Split(p, "/") {
		if e == ".." {
			return faultf(`may not hold "..": %s`, quote(p)).hinted("write %s", quote(path.Clean(p)))
		}
	}
	return nil
}

// checkPath checks a key that holds a path, and writes the path in its shortest form.
func (t table) checkPath(key string, p *string) {
	if !t.has(key) {
		return
	}
	t.wrong(key, pathFault(*p))
	*p = path.Clean(*p)
}

// checkPaths does the same for a list of paths.
func (t table) checkPaths(key string, list []string) {
	for i, p := range list {
		if f := pathFault(p); f != nil {
			t.wrong(key, f.at(i))
			continue
		}
		list[i] = path.Clean(p)
	}
}

// within reports whether a path is a directory, or in it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// hidingDir returns the directory of those that a service does not see in which a path is, or "". ProtectHome= and
// PrivateTmp= of systemd.exec(5) hide them.
func hidingDir(p string, protect ProtectHome) (dir string, byHome bool) {
	for _, dir := range []string{"/home", "/root", "/run/user"} {
		if within(p, dir) && protect == ProtectHomeYes {
			return dir, true
		}
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		if within(p, dir) {
			return dir, false
		}
	}
	return "", false
}

// checkHidden reports paths that an instance names, itself or through its engine and model, and cannot see.
func (l *loader) checkHidden(root *node, name string, p *Profile) {
	in := p.Instances[name]
	instance := l.table(root, "instance", name)
	check := func(t table, key string, item int, value string) {
		dir, byHome := hidingDir(value, in.ProtectHome)
		if dir == "" || instance.n.child("protect_home") != nil && !instance.has("protect_home") {
			return
		}
		f := faultf("is under %s, which instance %q cannot see", dir, name)
		if byHome {
			f.hinted(`move it, or set protect_home = "read-only" in [instance.%s]`, name)
		} else {
			f.hinted("move it: every instance has a %s of its own", dir)
		}
		f.item = item
		t.wrong(key, f)
	}
	list := func(t table, key string, values []string) {
		for i, v := range values {
			check(t, key, i+1, v)
		}
	}
	if e := p.Engines[in.Engine]; e != nil {
		t := l.table(root, "engine", in.Engine)
		check(t, "command", 0, e.Command)
		list(t, "path", e.Path)
	}
	if m := p.Models[in.Model]; m != nil {
		check(l.table(root, "model", in.Model), "path", 0, m.Path)
	}
	check(instance, "uds", 0, in.UDS)
	check(instance, "ssl_certfile", 0, in.SSLCertfile)
	check(instance, "ssl_keyfile", 0, in.SSLKeyfile)
	list(instance, "read_write_paths", in.ReadWritePaths)
}

// checkSecretFile checks a key that names a file with secrets. It returns what is in the file, where that may be
// known.
func (t table) checkSecretFile(key, name string) (text string, ok bool) {
	if !t.has(key) {
		return "", false
	}
	t.wrong(key, pathFault(name))
	if strings.ContainsAny(name, `*?[]\`) {
		t.wrong(key, faultf("may hold none of * ? [ ] \\, which systemd takes for a pattern: %s", quote(name)))
	}
	if !t.has(key) {
		return "", false
	}
	real, f := t.l.secrets.secretFault(name)
	if f != nil {
		t.wrong(key, f)
		return "", false
	}
	data, err := readRegular(t.l.secrets.in(real), maxEnvFile, syscall.O_NOFOLLOW)
	if err != nil {
		t.wrong(key, unread(err))
		return "", false
	}
	return string(data), true
}
