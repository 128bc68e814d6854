package shm

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"vllmhost/hostctl/proc"
)

func TestFamilies(t *testing.T) {
	for name, pid := range map[string]int{
		"psm_0a1b2c3d": 0, "sem.mp-ab_12345": 0, "sem.loky-812-x1y2z3w4": 812, "torch_99_0": 99,
		"vllm_offload_3f2a-11.mmap": 0, "vllm_ec_7.mmap": 0, "VLLM_OBJECT_STORAGE_SHM_BUFFER_00ff": 0,
		"vllm_dist_75ac2cc7af434d3a9c885dfcb1f72b39-tp:0-[0-1]-cpushm_1": 0,
		"nccl-Xy12ab": 0, "nvshmem-shm0": 0, "kvcached_vLLM_4242": 4242,
	} {
		if _, got, ok := familyOf(name); !ok || got != pid {
			t.Errorf("%s: known %v, pid %d; want pid %d", name, ok, got, pid)
		}
	}
	for _, name := range []string{
		"", "psm_", "psm_0a1b2c3", "psm_0a1b2c3d4", "psm_0A1B2C3D", "psm_0a1b2c3d.bak", "xpsm_0a1b2c3d", "psm_0a1b2c3d\n", "sem.other",
		"sem.loky-0-x", "sem.loky--1-x", "torch_x_1", "vllm_offload_../x.mmap", "nccl-short", "journal.1", "nvshmem", "kvcached_vLLM_",
		"vllm_dist_75ac2cc7af434d3a9c885dfcb1f72b39",
	} {
		if maker, _, ok := familyOf(name); ok {
			t.Errorf("%q is taken for %s", name, maker)
		}
	}
}

func FuzzFamily(f *testing.F) {
	f.Add("torch_99999999999999999999_1")
	f.Fuzz(func(t *testing.T, name string) {
		_, pid, ok := familyOf(name)
		if ok && (strings.ContainsAny(name, "/\x00\n") || pid < 0) {
			t.Errorf("%q is known, pid %d", name, pid)
		}
	})
}

// me is the test's own user, as an instance's.
func me(busy string) map[int]Owner {
	return map[int]Owner{os.Getuid(): {User: "vllm-a", Unit: "vllm-a.service", Busy: busy}}
}

// fill makes one stale file and returns the directory.
func fill(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// watched is a directory that only this process can have files of open: not every process may be looked into.
func watched(t *testing.T, dir string) Dir {
	t.Helper()
	self := strconv.Itoa(os.Getpid())
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "proc"), 0o755))
	must(t, os.Symlink("/proc/"+self, filepath.Join(root, "proc", self)))
	return Dir{dir, proc.FS{Root: root}}
}

func scan(t *testing.T, dir string, owners map[int]Owner) []File {
	t.Helper()
	files, err := watched(t, dir).Scan(owners)
	must(t, err)
	return files
}

func TestScan(t *testing.T) {
	const stale = "psm_00000001"
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, path string)
		owners map[int]Owner
		keep   string // "" when it may go
	}{
		{name: "as left behind"},
		{name: "its user's instance runs", owners: me("vllm-a.service"), keep: "vllm-a's, and vllm-a.service runs"},
		{name: "nobody's", owners: map[int]Owner{}, keep: "of user "},
		{name: "another name of it", change: func(t *testing.T, path string) {
			must(t, os.Link(path, filepath.Join(filepath.Dir(path), "other")))
		}, keep: "it has 2 names"},
		{name: "open", change: func(t *testing.T, path string) {
			f, err := os.Open(path)
			must(t, err)
			t.Cleanup(func() { f.Close() })
		}, keep: "in use by pid"},
		{name: "mapped, and closed", change: func(t *testing.T, path string) {
			f, err := os.Open(path)
			must(t, err)
			data, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
			must(t, err)
			must(t, f.Close())
			t.Cleanup(func() { _ = syscall.Munmap(data) })
		}, keep: "in use by pid"},
		{name: "a link to it", change: func(t *testing.T, path string) {
			must(t, os.Rename(path, path+".real"))
			must(t, os.Symlink(path+".real", path))
		}, keep: "a symbolic link"},
		{name: "a directory", change: func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, os.Mkdir(path, 0o700))
		}, keep: "a directory"},
		{name: "a pipe", change: func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, syscall.Mkfifo(path, 0o600))
		}, keep: "no regular file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := fill(t, stale)
			if tt.change != nil {
				tt.change(t, filepath.Join(dir, stale))
			}
			if tt.owners == nil {
				tt.owners = me("")
			}
			files := scan(t, dir, tt.owners)
			if len(files) != 1 || files[0].Name != stale {
				t.Fatalf("found %+v", files)
			}
			if f := files[0]; f.Stale != (tt.keep == "") || !strings.HasPrefix(f.Why, tt.keep) {
				t.Errorf("stale %v, %q; want %q", f.Stale, f.Why, tt.keep)
			}
		})
	}
}

// A process that cannot be looked into may have anything open.
func TestHiddenProcess(t *testing.T) {
	d := watched(t, fill(t, "psm_00000001"))
	must(t, os.Mkdir(filepath.Join(d.Processes.Root, "proc/77"), 0o755))
	must(t, os.WriteFile(filepath.Join(d.Processes.Root, "proc/77/fd"), nil, 0o600)) // no directory to be read
	files, err := d.Scan(me(""))
	must(t, err)
	if files[0].Stale || !strings.Contains(files[0].Why, "only root can see") {
		t.Errorf("%+v", files[0])
	}
}

func TestMaker(t *testing.T) {
	gone := exec.Command("/bin/true")
	must(t, gone.Run())
	dead, alive := "torch_"+strconv.Itoa(gone.Process.Pid)+"_0", "torch_"+strconv.Itoa(os.Getpid())+"_0"
	for _, f := range scan(t, fill(t, dead, alive), me("")) {
		if f.Stale != (f.Name == dead) {
			t.Errorf("%s: stale %v, %q", f.Name, f.Stale, f.Why)
		}
	}
}

// Between the look and the removal anything can happen to a file. Only what was looked at goes.
func TestRemove(t *testing.T) {
	dir := fill(t, "psm_00000001", "psm_00000002", "psm_00000003", "psm_00000004", "psm_00000005", "unknown")
	files := scan(t, dir, me(""))
	path := func(n string) string { return filepath.Join(dir, "psm_0000000"+n) }
	// Another file under the same name; a link in its place; one that is opened; one that is gone.
	must(t, os.WriteFile(path("2")+".new", nil, 0o600))
	must(t, os.Rename(path("2")+".new", path("2")))
	must(t, os.Remove(path("3")))
	must(t, os.Symlink(filepath.Join(dir, "unknown"), path("3")))
	opened, err := os.Open(path("4"))
	must(t, err)
	defer opened.Close()
	must(t, os.Remove(path("5")))

	removed, err := watched(t, dir).Remove(files)
	if err != nil || len(removed) != 1 || removed[0].Name != "psm_00000001" {
		t.Errorf("removed %+v, %v; want psm_00000001 alone", removed, err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"psm_00000002", "psm_00000003", "psm_00000004", "unknown"}; !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
}

// The directory itself may be a trap.
func TestDirectoryIsALink(t *testing.T) {
	dir := fill(t, "psm_00000001")
	link := filepath.Join(t.TempDir(), "shm")
	must(t, os.Symlink(dir, link))
	if _, err := (Dir{Path: link}).Scan(me("")); err == nil {
		t.Error("a link was followed")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
