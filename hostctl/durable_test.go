package hostctl

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"vllmhost/hostctl/swap"
	"vllmhost/hostctl/systemd"
	"vllmhost/hostctl/units"
	"vllmhost/unitgen"
)

// durableVariable makes this test binary the process that is traced: it carries out a swap in that directory.
const durableVariable = "VLLMHOST_TEST_SWAP_IN"

// The lines of a record, unit files and links reach the disk in that order: the system calls of a whole swap are looked at,
// of one that succeeds and of one that goes back. Before a line of the record is written, all that came before is on disk:
// the record itself, each file that was written, and each directory in which a name changed.
func TestDurableOrder(t *testing.T) {
	if dir := os.Getenv(durableVariable); dir != "" {
		swapIn(t, dir)
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("this test needs strace. On Debian: apt-get install strace")
	}
	if err := exec.Command(strace, "-o", os.DevNull, "true").Run(); err != nil {
		t.Skipf("processes may not be traced here: %v", err)
	}
	for _, fails := range []string{"", "fails"} {
		dir, trace := t.TempDir(), filepath.Join(t.TempDir(), "trace")
		cmd := exec.Command(strace, "--follow-forks", "--decode-fds=path", "--output="+trace, "--trace="+strings.Join([]string{
			"write", "pwrite64", "fsync", "fdatasync", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat",
		}, ","), os.Args[0], "-test.run=^TestDurableOrder$")
		cmd.Env = append(os.Environ(), durableVariable+"="+dir, "FAILS="+fails)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(trace)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := durable(string(text), dir)
		if err != nil {
			t.Errorf("a swap that %s: %v", map[string]string{"": "succeeds", "fails": "goes back"}[fails], err)
		}
		// That there was something to see: lines of the record, a unit file put in place, what was there before kept,
		// and the links that start it at boot.
		for what, least := range map[string]int{"lines": 15, "renames": 1, "links": 2, "symlinks": 1} {
			if seen[what] < least {
				t.Errorf("%d %s were seen, want at least %d", seen[what], what, least)
			}
		}
	}
}

var (
	callOnFile = regexp.MustCompile(`(write|pwrite64|fsync|fdatasync)\(\d+<([^>]*)>`)
	callOnName = regexp.MustCompile(`(rename|link|symlink|unlink)(?:at2?)?\((.*)\) += 0`)
	quoted     = regexp.MustCompile(`"([^"]*)"`)
)

// durable looks at a trace of system calls for what is not on disk when the next line of a record below dir is written.
func durable(trace, dir string) (seen map[string]int, err error) {
	seen = map[string]int{}
	var waiting []string // files and directories that are to be synced
	add := func(path string) {
		if !slices.Contains(waiting, path) {
			waiting = append(waiting, path)
		}
	}
	for line := range strings.Lines(trace) {
		if call := callOnFile.FindStringSubmatch(line); call != nil && strings.HasPrefix(call[2], dir) {
			path := call[2]
			if strings.HasSuffix(call[1], "sync") {
				waiting = slices.DeleteFunc(waiting, func(w string) bool { return w == path })
				continue
			}
			if filepath.Base(filepath.Dir(path)) == "records" {
				if len(waiting) > 0 {
					return seen, fmt.Errorf("%q is not on disk before: %s", waiting, line)
				}
				seen["lines"]++
			}
			add(path)
			continue
		}
		call := callOnName.FindStringSubmatch(line)
		if call == nil {
			continue
		}
		names := quoted.FindAllStringSubmatch(call[2], -1)
		path := names[len(names)-1][1]
		// What these names stand for is needed by nobody after a crash: the record's first name, what was kept, and what
		// was pending and is installed.
		if !strings.HasPrefix(path, dir) || call[1] == "unlink" && (strings.HasSuffix(path, ".new") || strings.HasSuffix(path, ".before") ||
			filepath.Base(filepath.Dir(path)) == "pending") {
			continue
		}
		if call[1] == "rename" && slices.Contains(waiting, names[0][1]) {
			return seen, fmt.Errorf("%q is not on disk before it gets its name: %s", names[0][1], line)
		}
		seen[call[1]+"s"]++
		add(filepath.Dir(path))
	}
	if len(waiting) > 0 {
		return seen, fmt.Errorf("%q is never on disk", waiting)
	}
	return seen, nil
}

// The test above sees what is missing.
func TestDurableSees(t *testing.T) {
	const good = `1 write(7</d/records/.x.new>, "{}", 2) = 2
1 fsync(7</d/records/.x.new>) = 0
1 linkat(AT_FDCWD, "/d/records/.x.new", AT_FDCWD, "/d/records/x.jsonl", 0) = 0
1 fsync(8</d/records>) = 0
1 unlinkat(AT_FDCWD, "/d/records/.x.new", 0) = 0
1 write(9</d/units/.tmp1>, "[Unit]", 6) = 6
2 fsync(9</d/units/.tmp1>) = 0
1 renameat(AT_FDCWD, "/d/units/.tmp1", AT_FDCWD, "/d/units/a.service") = 0
1 fsync(8</d/units>) = 0
1 write(7</d/records/x.jsonl>, "{}", 2) = 2
1 fsync(7</d/records/x.jsonl>) = 0
`
	if seen, err := durable(good, "/d"); err != nil || seen["lines"] != 2 || seen["renames"] != 1 || seen["links"] != 1 {
		t.Errorf("%v, %v", seen, err)
	}
	lines := strings.SplitAfter(good, "\n")
	for n, line := range lines {
		if strings.Contains(line, "fsync") {
			if _, err := durable(strings.Join(slices.Delete(slices.Clone(lines), n, n+1), ""), "/d"); err == nil {
				t.Errorf("not missed: %s", line)
			}
		}
	}
}

// swapIn carries out a swap with real files, in dir, and a host that does as it is told.
func swapIn(t *testing.T, dir string) {
	for _, sub := range []string{"units", "pending", "records"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, pending := units.Dir{Path: filepath.Join(dir, "units")}, units.Dir{Path: filepath.Join(dir, "pending")}
	text := func(instance, extra string) []byte {
		return unitgen.Seal(fmt.Appendf(nil, "[Service]\nExecStart=:/bin/vllm %s\n\n[X-Vllmhost]\nFormat=1\nInstance=%s\nPort=8000\n", extra, instance))
	}
	next := text("new", "2")
	for _, err := range []error{
		files.Write("vllm-old.service", text("old", "1")), files.Write("vllm-new.service", text("new", "1")),
		pending.Write("vllm-new.service", next), files.Enable("vllm-old.service", bootTarget),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	fact := func(instance, active string, enabled bool, pending []byte) swap.Fact {
		text, err := files.Read(unitgen.UnitName(instance))
		if err != nil {
			t.Fatal(err)
		}
		section, err := unitgen.ParseSection(text)
		if err != nil {
			t.Fatal(err)
		}
		return swap.Fact{Section: section, Text: text, Pending: pending, Enabled: enabled, Status: systemd.UnitStatus{Active: active}}
	}
	plan, problems := swap.NewPlan("test", []swap.Fact{fact("new", "inactive", false, next), fact("old", "active", true, nil)}, []string{"new"})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	record, err := swap.Create(filepath.Join(dir, "records"), swap.Entry{Op: opSwap, ID: "test", Request: &swap.Request{Names: []string{"new"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	want := swap.Swapped
	host := obedient{}
	if os.Getenv("FAILS") != "" {
		want, host.fails = swap.RolledBack, true
	}
	runner := swap.Runner{Systemd: host, Files: files, Pending: pending, Prover: host, Cgroups: host, Requests: host, Preflight: host,
		Resources: host, Claims: host, Progress: silent{}, Record: record}
	if res := runner.Run(context.Background(), plan, false); res.State != want {
		t.Fatalf("%s: %s %v", res.State, res.Error, res.Undo)
	}
	if installed, err := files.Read("vllm-new.service"); err != nil || bytes.Equal(installed, next) == host.fails {
		t.Fatalf("installed is %q, %v", installed, err)
	}
}

// obedient is a host on which all goes well, but for the probe of the new side if it fails.
type obedient struct{ fails bool }

func (obedient) State(_ context.Context, name string) (systemd.UnitStatus, error) {
	return systemd.UnitStatus{Name: name, Active: "active"}, nil
}
func (obedient) Start(context.Context, string) error                     { return nil }
func (obedient) Stop(context.Context, string) error                      { return nil }
func (obedient) Kill(context.Context, string, syscall.Signal) error      { return nil }
func (obedient) ResetFailed(context.Context, string) error               { return nil }
func (obedient) ReloadIfNeeded(context.Context, ...string) (bool, error) { return true, nil }
func (obedient) Stopping(context.Context) (bool, error)                  { return false, nil }
func (obedient) Members(string) ([]swap.Member, error)                   { return nil, nil }
func (obedient) Running(context.Context, unitgen.Section) (int, bool)    { return 0, false }
func (obedient) Check(context.Context, *swap.Plan) (string, []swap.Problem, error) {
	return "", nil, nil
}
func (obedient) Clean(context.Context, []unitgen.Section) (string, error) { return "", nil }
func (obedient) MayStart(...string) error                                 { return nil }
func (obedient) AwaitFree(context.Context, []unitgen.Section, func(string)) (string, error) {
	return "", nil
}
func (obedient) Watch(context.Context, string) (<-chan systemd.UnitStatus, error) {
	states := make(chan systemd.UnitStatus)
	close(states)
	return states, nil
}
func (o obedient) Prove(_ context.Context, s unitgen.Section) (string, error) {
	if o.fails && s.Instance == "new" {
		return "", fmt.Errorf("%s makes no token", s.Instance)
	}
	return "proven", nil
}
