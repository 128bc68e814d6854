package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What /proc/PID/cgroup says on the kinds of hosts there are, and what systemd takes of it.
func TestCgroupOf(t *testing.T) {
	const (
		version2 = "sys/fs/cgroup/cgroup.controllers"
		hybrid   = "sys/fs/cgroup/unified/cgroup.controllers"
		legacy   = "sys/fs/cgroup/systemd/cgroup.procs"
	)
	tests := map[string]struct {
		mark string
		text string
		want string
	}{
		"version 2":             {version2, "0::/system.slice/vllm-a.service\n", "/system.slice/vllm-a.service"},
		"version 2, colons":     {version2, "0::/system.slice/a:b.service\n", "/system.slice/a:b.service"},
		"version 2, removed":    {version2, "0::/system.slice/a.service (deleted)\n", "/system.slice/a.service"},
		"version 2, outside":    {version2, "0::/../other\n", "/../other"},
		"version 2, root":       {version2, "0::/\n", "/"},
		"hybrid":                {hybrid, "9:memory:/m\n1:name=systemd:/system.slice/a.service\n0::/system.slice/a.service\n", "/system.slice/a.service"},
		"hybrid, only memory":   {hybrid, "9:memory:/m\n1:name=systemd:/\n0::/\n", "/"},
		"hybrid, unified empty": {hybrid, "1:name=systemd:/system.slice/a.service\n0::/\n", "/system.slice/a.service"},
		"hybrid, unified first": {hybrid, "1:name=systemd:/x\n0::/system.slice/a.service\n", "/system.slice/a.service"},
		"legacy":                {legacy, "9:memory:/m\n4:cpu,cpuacct:/c\n1:name=systemd:/system.slice/a.service\n0::/\n", "/system.slice/a.service"},
		"nothing":               {version2, "9:memory:/m\n", "error"},
		"garbage":               {version2, "0::\n::\n0:x", "error"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, map[string]string{test.mark: "", "proc/7/cgroup": test.text})
			got, err := FS{dir}.CgroupOf(7)
			if err != nil {
				got = "error"
			}
			if got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestUnitOfAndContainerOf(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	tests := []struct{ cgroup, unit, container string }{
		{"/system.slice/vllm-a.service", "vllm-a.service", ""},
		{"/system.slice/system-vllm.slice/vllm@a.service", "vllm@a.service", ""},
		{"/system.slice/vllm-a.service/worker/0", "vllm-a.service", ""},
		{"/system.slice/vllm-a.service/other.service", "vllm-a.service", ""},
		{"/init.scope", "init.scope", ""},
		{"/user.slice/user-1000.slice/session-12.scope", "session-12.scope", ""},
		{"/user.slice/user-1000.slice/user@1000.service/app.slice/a.service", "user@1000.service", ""},
		{"/system.slice/_cpu.service", "cpu.service", ""},
		{"/system.slice/.service", "", ""},
		{"/system.slice", "", ""},
		{"/", "", ""},
		{"", "", ""},
		{"/process_api/x", "", ""},
		{"/payload/system.slice/a.service", "", ""},
		{"/system.slice/docker-" + id + ".scope", "docker-" + id + ".scope", "0123456789ab"},
		{"/docker/" + id, "", "0123456789ab"},
		{"/machine.slice/libpod-" + id + ".scope/container", "libpod-" + id + ".scope", "0123456789ab"},
		{"/kubepods.slice/kubepods-burstable.slice/cri-containerd-" + id + ".scope", "cri-containerd-" + id + ".scope", "0123456789ab"},
		{"/kubepods/burstable/pod1f/" + id, "", "0123456789ab"},
		{"/machine.slice/systemd-nspawn@web.service/payload/system.slice/a.service", "systemd-nspawn@web.service", "web"},
		{"/machine.slice/machine-web.scope", "machine-web.scope", "web"},
		{"/lxc.payload.web/system.slice/a.service", "", "web"},
	}
	for _, test := range tests {
		if got := UnitOf(test.cgroup); got != test.unit {
			t.Errorf("the unit of %q is %q, want %q", test.cgroup, got, test.unit)
		}
		if got := ContainerOf(test.cgroup); got != test.container {
			t.Errorf("the container of %q is %q, want %q", test.cgroup, got, test.container)
		}
	}
}

func TestMembers(t *testing.T) {
	for _, mount := range []string{"", "unified", "systemd"} {
		t.Run("mounted at "+mount, func(t *testing.T) {
			dir, root := t.TempDir(), filepath.Join("sys/fs/cgroup", mount)
			group := filepath.Join(root, "system.slice/vllm-a.service")
			files := map[string]string{
				group + "/cgroup.procs":                             "12\n0\n7\n",
				group + "/worker/cgroup.procs":                      "8\n",
				group + "/worker/deep/cgroup.procs":                 "",
				root + "/system.slice/vllm-ab.service/cgroup.procs": "99\n",
				root + "/cgroup.procs":                              "1\n",
			}
			if mount != "systemd" {
				files[root+"/cgroup.controllers"] = ""
			}
			write(t, dir, files)
			tests := map[string]string{
				"/system.slice/vllm-a.service":   "[7 8 12] <nil>",
				"/system.slice/gone.service":     "[] <nil>",
				"":                               "[] <nil>",
				"/":                              `[] cannot list the processes of control group "/": not the path of a unit`,
				"/system.slice/..":               `[] cannot list the processes of control group "/system.slice/..": not the path of a unit`,
				"/..":                            `[] cannot list the processes of control group "/..": not the path of a unit`,
				"system.slice":                   `[] cannot list the processes of control group "system.slice": not the path of a unit`,
				"/system.slice/vllm-a.service/.": `[] cannot list the processes of control group "/system.slice/vllm-a.service/.": not the path of a unit`,
			}
			for cgroup, want := range tests {
				pids, err := FS{dir}.Members(cgroup)
				slices.Sort(pids)
				if got := fmt.Sprint(pids, err); got != want {
					t.Errorf("%q: got %s, want %s", cgroup, got, want)
				}
			}
		})
	}
}

// On a hybrid host a group may exist in the version 1 tree alone.
func TestMembersOfTheSecondTree(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"sys/fs/cgroup/unified/cgroup.controllers":                  "",
		"sys/fs/cgroup/systemd/system.slice/a.service/cgroup.procs": "5\n",
	})
	if pids, err := (FS{dir}).Members("/system.slice/a.service"); err != nil || !slices.Equal(pids, []int{5}) {
		t.Errorf("got %v, %v", pids, err)
	}
}

// A real group in the tree of this host, with a real process in it.
func TestMembersOfThisHost(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a control group")
	}
	root := ""
	for _, tree := range (FS{}).trees() {
		if _, err := os.Stat(tree.dir); err == nil {
			root = tree.dir
			break
		}
	}
	if root == "" {
		t.Skip("needs a control group file system at /sys/fs/cgroup")
	}
	name := fmt.Sprintf("/vllmhost-test-%d.service", os.Getpid())
	if err := os.MkdirAll(filepath.Join(root, name, "worker"), 0o755); err != nil {
		t.Skipf("needs to make control groups: %v", err)
	}
	cmd := sleeper(t) // its clean-up runs after ours, so we end it ourselves
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		for _, dir := range []string{"worker", ""} {
			if err := os.Remove(filepath.Join(root, name, dir)); err != nil {
				t.Errorf("left behind: %v", err)
			}
		}
	})
	if err := os.WriteFile(filepath.Join(root, name, "worker", "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	if pids, err := Members(name); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("members %v, %v, want %d", pids, err, cmd.Process.Pid)
	}
	p, err := Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if p.Cgroup != name+"/worker" || p.Unit != strings.TrimPrefix(name, "/") {
		t.Errorf("it is in group %q, unit %q", p.Cgroup, p.Unit)
	}
}
