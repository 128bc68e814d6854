package systemd_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vllmhost/hostctl/systemd"
	"vllmhost/hostctl/systemd/systemdtest"
)

func TestUnit(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 2, 3, 4, 5, 6000, time.UTC)
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{
		Name: unit, Active: "activating", Sub: "start-post", StatusText: "loading weights 58 %",
		InvocationID: "0123456789abcdef0123456789abcdef", ControlGroup: "/system.slice/vllm-a.service",
		FragmentPath: "/etc/systemd/system/vllm-a.service", DropIns: []string{"/etc/systemd/system/vllm-.service.d/a.conf"},
		UnitFileState: "enabled", MainPID: 4711, ExecMainCode: 2, ExecMainStatus: 9, NRestarts: 2, NeedReload: true,
		Since: since, ActiveSince: since.Add(-time.Hour),
		ExecStart: []string{"/opt/vllm/bin/vllm", "serve", "a b"}, Environment: []string{"A=b c"},
		Starts: []systemdtest.Outcome{{Hang: true, During: func(*systemdtest.Unit) {}}},
	})
	ctx, c := open(t, srv)
	if err := c.QueueStart(ctx, unit); err != nil {
		t.Fatal(err)
	}
	got, err := c.Unit(ctx, unit)
	if err != nil {
		t.Fatal(err)
	}
	want := systemd.UnitStatus{
		Name: unit, Load: "loaded", Active: "activating", Sub: "start-post", Result: "success",
		StatusText: "loading weights 58 %", InvocationID: "0123456789abcdef0123456789abcdef",
		ControlGroup: "/system.slice/vllm-a.service", FragmentPath: "/etc/systemd/system/vllm-a.service",
		DropIns: []string{"/etc/systemd/system/vllm-.service.d/a.conf"}, UnitFileState: "enabled",
		MainPID: 4711, ExecMainCode: "killed", ExecMainStatus: 9, NRestarts: 2, NeedReload: true,
		Since: since, ActiveSince: since.Add(-time.Hour),
		ExecStart: []string{"/opt/vllm/bin/vllm", "serve", "a b"}, Environment: []string{"A=b c"},
		Job: systemd.Job{ID: 1, Type: "start"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestUnknownUnit(t *testing.T) {
	t.Parallel()
	ctx, c := open(t, systemdtest.Start(t))
	got, err := c.Unit(ctx, "vllm-unknown.service")
	if err != nil || got.Load != "not-found" || got.Active != "inactive" || !got.Since.IsZero() {
		t.Errorf("got %+v, %v, want not-found and no error", got, err)
	}
}

// State tells the same as Unit, of less, without the reading of all properties, and does not load a unit.
func TestState(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	srv.Add(systemdtest.Unit{Name: "vllm-a.service", StatusText: "loading weights 43 %", Stops: []systemdtest.Outcome{{Hang: true}}})
	ctx, c := open(t, srv)
	if err := c.Start(ctx, "vllm-a.service"); err != nil {
		t.Fatal(err)
	}
	if err := c.QueueStop(ctx, "vllm-a.service"); err != nil {
		t.Fatal(err)
	}
	before := srv.Calls("GetAll")
	got, err := c.State(ctx, "vllm-a.service")
	if err != nil || srv.Calls("GetAll") != before {
		t.Errorf("%v; %d reads of all properties, want none", err, srv.Calls("GetAll")-before)
	}
	all, err := c.Unit(ctx, "vllm-a.service")
	if err != nil {
		t.Fatal(err)
	}
	want := systemd.UnitStatus{Name: all.Name, Load: all.Load, Active: all.Active, Sub: all.Sub, Job: all.Job,
		StatusText: all.StatusText, InvocationID: all.InvocationID, ControlGroup: all.ControlGroup}
	if diff := cmp.Diff(want, got); diff != "" || got.StatusText == "" || got.InvocationID == "" || got.ControlGroup == "" {
		t.Errorf("(-Unit +State)\n%s", diff)
	}
	got, err = c.State(ctx, "vllm-unknown.service")
	if want := (systemd.UnitStatus{Name: "vllm-unknown.service", Active: "inactive", Sub: "dead"}); err != nil || !cmp.Equal(got, want) {
		t.Errorf("of one that is not loaded: got %+v, %v, want %+v", got, err, want)
	}
}

func TestDefinition(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	dropIns := []string{"/etc/systemd/system/vllm-a.service.d/port.conf"}
	srv.Add(systemdtest.Unit{Name: "vllm-a.service", DropIns: dropIns})
	srv.Add(systemdtest.Unit{Name: "vllm-b.service", Load: "masked"})
	ctx, c := open(t, srv)
	for name, want := range map[string]struct {
		load    string
		dropIns []string
	}{"vllm-a.service": {"loaded", dropIns}, "vllm-b.service": {"masked", nil}, "vllm-unknown.service": {"not-found", nil}} {
		load, got, err := c.Definition(ctx, name)
		if err != nil || load != want.load || !slices.Equal(got, want.dropIns) {
			t.Errorf("%s: got %q, %q, %v, want %+v", name, load, got, err, want)
		}
	}
	if _, _, err := c.Definition(ctx, "no unit"); err == nil {
		t.Error("a name that is none is accepted")
	}
}

// A list takes one call, however long it is.
func TestList(t *testing.T) {
	t.Parallel()
	srv := systemdtest.Start(t)
	for _, u := range []systemdtest.Unit{
		{Name: "vllm-b.service", Active: "active"}, {Name: "vllm-a.service", Starts: []systemdtest.Outcome{{Hang: true}}},
		{Name: "sshd.service"}, {Name: "vllm-mentioned.service", Load: "not-found"},
	} {
		srv.Add(u)
	}
	ctx, c := open(t, srv)
	if err := c.QueueStart(ctx, "vllm-a.service"); err != nil {
		t.Fatal(err)
	}
	got, err := c.List(ctx, "vllm-*.service")
	if err != nil {
		t.Fatal(err)
	}
	want := []systemd.UnitStatus{
		{Name: "vllm-a.service", Load: "loaded", Active: "activating", Sub: "start", Job: systemd.Job{ID: 1, Type: "start"}},
		{Name: "vllm-b.service", Load: "loaded", Active: "active", Sub: "running"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if lists, reads := srv.Calls("ListUnitsByPatterns"), srv.Calls("GetAll"); lists != 1 || reads != 0 {
		t.Errorf("%d lists and %d reads, want 1 and 0", lists, reads)
	}
	if got, err := c.List(ctx); got != nil || err != nil {
		t.Errorf("no pattern: got %v, %v, want nothing", got, err)
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status systemd.UnitStatus
		want   string
	}{
		"serves": {systemd.UnitStatus{Active: "active", Result: "success"}, ""},
		"an engine that dies ends with 0": {
			systemd.UnitStatus{Active: "activating", Sub: "auto-restart", Result: "success", ExecMainCode: "exited"},
			"main process exited with status 0",
		},
		"a signal without a name": {
			systemd.UnitStatus{Active: "failed", Result: "signal", ExecMainCode: "killed", ExecMainStatus: 64},
			"result signal, main process killed by signal 64",
		},
		"core dump": {
			systemd.UnitStatus{Active: "failed", Result: "core-dump", ExecMainCode: "dumped", ExecMainStatus: 6},
			"result core-dump, main process killed by SIGABRT and dumped core",
		},
		"a failed hook ends the main process too": {
			systemd.UnitStatus{Active: "failed", Result: "exit-code", ExecMainCode: "killed", ExecMainStatus: 15,
				FailedHook: "ExecStartPost=/usr/bin/vllmhost await a exited with status 1"},
			"result exit-code, ExecStartPost=/usr/bin/vllmhost await a exited with status 1",
		},
		"a dead main process fails the hook": {
			systemd.UnitStatus{Active: "failed", Result: "exit-code", ExecMainCode: "exited", ExecMainStatus: 1,
				FailedHook: "ExecStartPost=/usr/bin/vllmhost await a exited with status 1"},
			"result exit-code, ExecStartPost=/usr/bin/vllmhost await a exited with status 1, main process exited with status 1",
		},
	} {
		if got := test.status.Failure(); got != test.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, test.want)
		}
	}
}
