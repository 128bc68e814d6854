package units

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const target = "multi-user.target"

const installable = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"

// isEnabled asks systemctl, about a directory tree that is not this host's.
func isEnabled(t *testing.T, root string) bool {
	t.Helper()
	if _, err := exec.LookPath("systemctl"); err != nil {
		t.Fatal("this test needs systemctl. On Debian: apt-get install systemd")
	}
	out, err := exec.Command("systemctl", "--root="+root, "is-enabled", name).CombinedOutput()
	switch word := strings.TrimSpace(string(out)); word {
	case "enabled":
		return true
	case "disabled":
		return false
	default:
		t.Fatalf("systemctl is-enabled: %q, %v", word, err)
		return false
	}
}

func TestEnableDisable(t *testing.T) {
	root := t.TempDir()
	d := Dir{filepath.Join(root, "etc/systemd/system")}
	must(t, os.MkdirAll(d.Path, 0o755))
	must(t, d.Write(name, []byte(installable)))

	check := func(step string, want bool) {
		t.Helper()
		got, err := d.Enabled(name, target)
		if got != want || err != nil {
			t.Errorf("%s: enabled is %v, %v, want %v", step, got, err, want)
		}
		if got := isEnabled(t, root); got != want {
			t.Errorf("%s: systemctl says enabled is %v, want %v", step, got, want)
		}
	}
	check("at first", false)
	must(t, d.Disable(name, target))
	must(t, d.Enable(name, target))
	check("enabled", true)
	must(t, d.Enable(name, target))
	check("enabled again", true)
	if to, err := os.Readlink(d.link(name, target)); err != nil || to != d.file(name) {
		t.Errorf("the link leads to %q, %v, want %q", to, err, d.file(name))
	}
	must(t, d.Disable(name, target))
	check("disabled", false)
	must(t, d.Disable(name, target))
	check("disabled again", false)

	// Enabled by hand, with a link of another form: it is one, and stays as it is.
	must(t, os.Symlink("../"+name, d.link(name, target)))
	check("by hand", true)
	must(t, d.Enable(name, target))
	if to, _ := os.Readlink(d.link(name, target)); to != "../"+name {
		t.Errorf("the link made by hand leads to %q now", to)
	}
	must(t, d.Disable(name, target))
	check("by hand, disabled", false)
}

// What systemctl enables and disables, we see; what we enable, systemctl disables.
func TestSystemctlAgrees(t *testing.T) {
	root := t.TempDir()
	d := Dir{filepath.Join(root, "etc/systemd/system")}
	must(t, os.MkdirAll(d.Path, 0o755))
	must(t, d.Write(name, []byte(installable)))
	systemctl := func(verb string) {
		t.Helper()
		if out, err := exec.Command("systemctl", "--root="+root, verb, name).CombinedOutput(); err != nil {
			t.Fatalf("systemctl %s: %v\n%s", verb, err, out)
		}
	}
	isEnabled(t, root) // says what to install where systemctl is missing
	systemctl("enable")
	if on, err := d.Enabled(name, target); !on || err != nil {
		t.Errorf("systemctl enabled it, we say %v, %v", on, err)
	}
	must(t, d.Disable(name, target))
	must(t, d.Enable(name, target))
	systemctl("disable")
	if on, err := d.Enabled(name, target); on || err != nil {
		t.Errorf("systemctl disabled it, we say %v, %v", on, err)
	}
}

// What is in the way of a link is told, and stays.
func TestInTheWay(t *testing.T) {
	for what, test := range map[string]struct {
		make    func(string) error
		enabled string // the error of Enabled; empty: there is none, and the unit is not enabled
		enable  string
		disable string
	}{
		"a file": {
			func(p string) error { return os.WriteFile(p, nil, 0o644) },
			"is not a link", "is not a link", "is not a link",
		},
		"a directory": {
			func(p string) error { return os.Mkdir(p, 0o755) },
			"is not a link", "is not a link", "is not a link",
		},
		"a link to /dev/null": {
			func(p string) error { return os.Symlink(os.DevNull, p) },
			"", "made by hand to keep the unit from starting", "",
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := Dir{t.TempDir()}
			must(t, d.Write(name, []byte(installable)))
			must(t, os.Mkdir(filepath.Join(d.Path, target+".wants"), 0o755))
			must(t, test.make(d.link(name, target)))
			before, err := os.Lstat(d.link(name, target))
			must(t, err)

			enabled, enabledErr := d.Enabled(name, target)
			if enabled {
				t.Error("it counts as enabled")
			}
			for _, op := range []struct {
				name, want string
				err        error
			}{
				{"enabled", test.enabled, enabledErr},
				{"enable", test.enable, d.Enable(name, target)},
				{"disable", test.disable, d.Disable(name, target)},
			} {
				if op.want == "" && op.err != nil || op.want != "" && (op.err == nil || !strings.Contains(op.err.Error(), op.want)) {
					t.Errorf("%s: got %v, want %q", op.name, op.err, op.want)
				}
			}
			if after, err := os.Lstat(d.link(name, target)); err != nil || !os.SameFile(before, after) {
				t.Errorf("it did not stay: %v", err)
			}
		})
	}
}

func TestEnableNeedsTheUnit(t *testing.T) {
	d := Dir{t.TempDir()}
	want := `cannot enable "vllm-a.service": "` + d.file(name) + `": no such file or directory`
	if err := d.Enable(name, target); err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
	// A link that dangles is seen, and can be taken away.
	must(t, d.Write(name, []byte(installable)))
	must(t, d.Enable(name, target))
	must(t, d.Remove(name))
	if on, err := d.Enabled(name, target); !on || err != nil {
		t.Errorf("a dangling link: got %v, %v", on, err)
	}
	must(t, d.Disable(name, target))
	if diff := cmp.Diff([]string{target + ".wants"}, names(t, d.Path)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDropIns(t *testing.T) {
	d := Dir{t.TempDir()}
	for _, file := range []string{
		"vllm-kimi-int4.service.d/20-b.conf", "vllm-kimi-int4.service.d/10-a.conf", "vllm-kimi-.service.d/x.conf",
		"vllm-.service.d/x.conf", "service.d/x.conf",
		// not of this unit, or not drop-ins
		"vllm-kimi.service.d/x.conf", "vllm.service.d/x.conf", "vllm-kimi-int4.service.d/x.conf.bak",
		"vllm-kimi-int4.service.d/.x.conf", "vllm-kimi-int4-2.service.d/x.conf",
	} {
		path := filepath.Join(d.Path, file)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, 0o644))
	}
	got, err := d.DropIns("vllm-kimi-int4.service")
	must(t, err)
	for i := range got {
		got[i], _ = filepath.Rel(d.Path, got[i])
	}
	want := []string{
		"vllm-kimi-int4.service.d/10-a.conf", "vllm-kimi-int4.service.d/20-b.conf",
		"vllm-kimi-.service.d/x.conf", "vllm-.service.d/x.conf", "service.d/x.conf",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
