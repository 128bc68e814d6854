package hostctl

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vllmhost/conf"
	"vllmhost/hostctl/systemd/systemdtest"
)

// stage is a host below a temporary root, with a scripted systemd.
type stage struct {
	*Host
	t       *testing.T
	root    string
	systemd *systemdtest.Server
}

func newStage(t *testing.T) *stage {
	t.Helper()
	server := systemdtest.Start(t)
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, unitDir), 0o755); err != nil {
		t.Fatal(err)
	}
	host, err := Open(context.Background(), Options{Root: root, BusAddress: server.Address()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	return &stage{Host: host, t: t, root: root, systemd: server}
}

// profile loads a profile in which port is the port of instance "a", with further lines for it.
func (s *stage) profile(port string, more ...string) *conf.Profile {
	s.t.Helper()
	return s.load(`schema = 1
[host]
gpus = 0
[engine.cpu]
command = "/opt/vllm/bin/vllm"
[model.tiny]
path = "/srv/models/tiny"
[instance.a]
model = "tiny"
engine = "cpu"
port = ` + port + "\n" + strings.Join(more, "\n"))
}

func (s *stage) load(text string) *conf.Profile {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "host.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	p, diags := conf.Load(path)
	if diags.HasErrors() {
		s.t.Fatalf("the test's profile is wrong:\n%v", diags)
	}
	p.Files = []string{"/etc/vllmhost/host.toml"} // the same in each apply
	return p
}

func (s *stage) apply(p *conf.Profile, o ApplyOptions) Applied {
	s.t.Helper()
	done, err := s.Apply(context.Background(), p, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return done
}

func (s *stage) actions(done Applied) map[string]Action {
	got := map[string]Action{}
	for _, u := range done.Units {
		got[u.Instance] = u.Action
	}
	return got
}

// files returns every file below the root with its content; the lock is left out.
func (s *stage) files() map[string]string {
	s.t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(s.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "/lock") || strings.HasSuffix(path, ".jsonl") {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			got[strings.TrimPrefix(path, s.root)], err = os.Readlink(path)
			return err
		}
		data, err := os.ReadFile(path)
		got[strings.TrimPrefix(path, s.root)] = string(data)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

const unitA = "vllm-a.service"

func (s *stage) unitPath() string { return filepath.Join(s.root, unitDir, unitA) }

func TestApplyActions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(*stage) // after the profile with port 8000 was applied
		port   string       // of the second apply; "" for a profile without the instance
		force  []string
		want   Action
		text   string // what the unit file then has: a port, "edited", "foreign", or "none"
	}{
		{name: "nothing changed", port: "8000", want: Unchanged, text: "8000"},
		{name: "changed while it is stopped", port: "8001", want: Update, text: "8001"},
		{name: "changed while it runs", port: "8001", want: Pend, text: "8000", before: (*stage).running},
		{name: "changed while it waits for a restart", port: "8001", want: Pend, text: "8000",
			before: func(s *stage) {
				s.systemd.Add(systemdtest.Unit{Name: unitA, Active: "activating", Sub: "auto-restart"})
			}},
		{name: "changed while it only starts at boot", port: "8001", want: Pend, text: "8000", before: (*stage).enable},
		{name: "pending, and then back", port: "8000", want: Withdraw, text: "8000",
			before: func(s *stage) { s.running(); s.apply(s.profile("8001"), ApplyOptions{}) }},
		{name: "pending already", port: "8001", want: Unchanged, text: "8000",
			before: func(s *stage) { s.running(); s.apply(s.profile("8001"), ApplyOptions{}) }},
		{name: "pending, and stopped since", port: "8001", want: Update, text: "8001",
			before: func(s *stage) {
				s.running()
				s.apply(s.profile("8001"), ApplyOptions{})
				s.systemd.Remove(unitA)
			}},
		{name: "edited by hand", port: "8001", want: Keep, text: "edited", before: (*stage).edit},
		{name: "edited by hand, forced", port: "8001", want: Update, text: "8001", force: []string{"a"}, before: (*stage).edit},
		{name: "left the profile", port: "", want: Remove, text: "none"},
		{name: "left the profile, but runs", port: "", want: Orphan, text: "8000", before: (*stage).running},
		{name: "left the profile, was edited by hand", port: "", want: Keep, text: "edited", before: (*stage).edit},
		{name: "left the profile, starts at boot", port: "", want: Remove, text: "none", before: (*stage).enable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			s.apply(s.profile("8000"), ApplyOptions{})
			if tt.before != nil {
				tt.before(s)
			}
			profile := s.load("schema = 1\n[host]\ngpus = 0\n")
			if tt.port != "" {
				profile = s.profile(tt.port)
			}
			dry := s.apply(profile, ApplyOptions{DryRun: true, Force: tt.force})
			before := s.files()
			if diff := cmp.Diff(before, s.files()); diff != "" {
				t.Errorf("a dry run wrote:\n%s", diff)
			}
			done := s.apply(profile, ApplyOptions{Force: tt.force})
			if got := s.actions(done)["a"]; got != tt.want {
				t.Errorf("action %q, want %q", got, tt.want)
			}
			if diff := cmp.Diff(s.actions(dry), s.actions(done)); diff != "" {
				t.Errorf("the dry run said otherwise (-dry run +apply):\n%s", diff)
			}
			s.expectUnit(tt.text)
			if again := s.apply(profile, ApplyOptions{}); again.Changed() {
				t.Errorf("applied again, it changes something: %v", s.actions(again))
			}
			if links := s.files()["/etc/systemd/system/multi-user.target.wants/"+unitA]; tt.text == "none" && links != "" {
				t.Errorf("the unit is gone, its link is not")
			}
		})
	}
}

func (s *stage) running() {
	s.systemd.Add(systemdtest.Unit{Name: unitA, Active: "active", Sub: "running", FragmentPath: s.unitPath()})
}

func (s *stage) enable() {
	if err := s.units.Enable(unitA, bootTarget); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) edit() {
	text, err := os.ReadFile(s.unitPath())
	if err == nil {
		err = os.WriteFile(s.unitPath(), append(text, "# edited\n"...), 0o644)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) expectUnit(want string) {
	s.t.Helper()
	text, err := os.ReadFile(s.unitPath())
	if want == "none" {
		if !errors.Is(err, fs.ErrNotExist) {
			s.t.Errorf("the unit is still there (%v)", err)
		}
		return
	}
	if err != nil || !strings.Contains(string(text), want) {
		s.t.Errorf("the unit does not say %s (%v)", want, err)
	}
}

func TestSecondApplyDoesNothing(t *testing.T) {
	s := newStage(t)
	if done := s.apply(s.profile("8000"), ApplyOptions{}); !done.Changed() || done.ID == "" {
		t.Fatal("the first apply changed nothing")
	}
	before, records := s.files(), s.recordCount()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(s.unitPath(), old, old); err != nil {
		t.Fatal(err)
	}
	done := s.apply(s.profile("8000"), ApplyOptions{})
	if done.Changed() || done.Reloaded || done.ID != "" {
		t.Errorf("the second apply says it changed something: %+v", done)
	}
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("files changed:\n%s", diff)
	}
	if info, err := os.Stat(s.unitPath()); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("the unit was written again (%v)", err)
	}
	if s.recordCount() != records {
		t.Error("it left a record")
	}
	for _, method := range []string{"Reload", "StartUnit", "StopUnit", "RestartUnit", "ResetFailedUnit", "KillUnit"} {
		if n := s.systemd.Calls(method); n != 0 {
			t.Errorf("%s was called %d times", method, n)
		}
	}
}

func (s *stage) recordCount() int {
	names, _ := filepath.Glob(filepath.Join(s.root, recordDir, "*.jsonl"))
	return len(names)
}

func TestApplyReloadsOnlyWhatIsLoaded(t *testing.T) {
	s := newStage(t)
	s.apply(s.profile("8000"), ApplyOptions{})
	s.systemd.Add(systemdtest.Unit{Name: unitA, Active: "failed", NeedReload: true, FragmentPath: s.unitPath()})
	if done := s.apply(s.profile("8001"), ApplyOptions{}); !done.Reloaded || s.systemd.Calls("Reload") != 1 {
		t.Errorf("a loaded unit that changed: reloaded %v, %d calls; want one", done.Reloaded, s.systemd.Calls("Reload"))
	}
}

func TestApplyRefusesForeignUnits(t *testing.T) {
	s := newStage(t)
	if err := os.WriteFile(s.unitPath(), []byte("[Service]\nExecStart=/bin/foreign\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := s.files()
	_, err := s.Apply(context.Background(), s.profile("8000", "[instance.b]", `model = "tiny"`, `engine = "cpu"`, "port = 8002"), ApplyOptions{})
	var foreign *ForeignUnitError
	if !errors.As(err, &foreign) || foreign.Instance != "a" {
		t.Fatalf("error %v, want a ForeignUnitError of a", err)
	}
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("something was written all the same:\n%s", diff)
	}
}

// Whatever fails, every file is as it was: here the reload, and a unit that cannot be replaced because a directory has
// its name.
func TestApplyRestores(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*stage)
	}{
		{"the reload fails", func(s *stage) {
			s.systemd.Add(systemdtest.Unit{Name: unitA, Active: "failed", NeedReload: true, FragmentPath: s.unitPath()})
			s.systemd.Refuse("Reload", "org.freedesktop.DBus.Error.Failed")
		}},
		{"the last file cannot be written", func(s *stage) {
			if err := os.MkdirAll(filepath.Join(s.root, pendingDir, "vllm-b.service", "x"), 0o755); err != nil {
				s.t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			s.apply(s.profile("8000"), ApplyOptions{})
			tt.set(s)
			before := s.files()
			_, err := s.Apply(context.Background(), s.profile("8001", "[instance.b]", `model = "tiny"`, `engine = "cpu"`, "port = 8002"), ApplyOptions{})
			if err == nil {
				t.Fatal("it says that all went well")
			}
			if diff := cmp.Diff(before, s.files()); diff != "" {
				t.Errorf("after %v the files are not as they were:\n%s", err, diff)
			}
		})
	}
}

func TestApplyIsLocked(t *testing.T) {
	s := newStage(t)
	held, err := s.lock(t.Context(), Holder{Op: "swap", ID: "7f3k", Summary: "minimax -> kimi-int4"}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	held.step("start")
	_, err = s.Apply(context.Background(), s.profile("8000"), ApplyOptions{})
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Holder.ID != "7f3k" || locked.Holder.Step != "start" {
		t.Fatalf("error %v, want a LockedError that names 7f3k at step start", err)
	}
	held.release()
	s.apply(s.profile("8000"), ApplyOptions{})
}
