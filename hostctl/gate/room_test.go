package gate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vllmhost/hostctl/ports"
	"vllmhost/unitgen"
)

// A host that is too small, in each way there is, and what is said about it.
func TestPreflightOfRoom(t *testing.T) {
	for _, tt := range []struct {
		name    string
		section unitgen.Section
		tiny    string // where a file system of one page is mounted
		sysctl  string // PATH VALUE below /proc/sys
		refused string
		hint    string
	}{
		{name: "a normal host"},
		{name: "no room for caches", tiny: "var/cache", refused: "/var/cache has 0 MB free, and 536 MB is wanted for what the engine compiles", hint: "df -h /var/cache"},
		{name: "no room for records", tiny: "var/lib", refused: "/var/lib has 0 MB free, and 16 MB is wanted for the records", hint: "df -h /var/lib"},
		{name: "a small /dev/shm that it shares", section: unitgen.Section{Shm: "host", GPUs: []string{"0", "1"}}, tiny: "dev/shm",
			refused: "/dev/shm has 0 MB free, and 671 MB is wanted", hint: "vllmhost clean"},
		{name: "a small /dev/shm that it does not use", tiny: "dev/shm"},
		{name: "few files", sysctl: "fs/nr_open 1024", refused: "fs.nr_open is 1024, and 65536 is wanted", hint: "sysctl -w fs.nr_open=65536"},
		{name: "few mappings", sysctl: "vm/max_map_count 100", refused: "vm.max_map_count is 100", hint: "sysctl -w vm.max_map_count=65530"},
		{name: "many mappings", sysctl: "vm/max_map_count 1048576"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for _, dir := range []string{"var/cache", "var/lib", "etc/systemd/system", "dev/shm"} {
				if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if tt.tiny != "" {
				dir := filepath.Join(root, tt.tiny)
				if err := unix.Mount("tiny", dir, "tmpfs", 0, "size=4k"); err != nil {
					t.Skipf("cannot mount: %v", err)
				}
				t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
			}
			if name, value, ok := strings.Cut(tt.sysctl, " "); ok {
				path := filepath.Join(root, "proc/sys", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			p := Preflight{Systemd: &fakeSystemd{}, Root: root, GPUs: &fakeGPUs{n: 2}, Holders: func(unitgen.Section) ([]ports.Holder, error) { return nil, nil }}
			_, refusals, err := p.Check(t.Context(), Candidate{Section: tt.section, Skip: []string{CheckEngine, CheckGPU, CheckMemory}})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tt.refused == "" && len(refusals) > 0:
				t.Errorf("refused: %v", refusals[0])
			case tt.refused != "" && (len(refusals) != 1 || !strings.Contains(refusals[0].Why, tt.refused) || refusals[0].Hint != tt.hint):
				t.Errorf("%v, want %q", refusals, tt.refused)
			}
		})
	}
}
