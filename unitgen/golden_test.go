package unitgen

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"vllmhost/conf"
)

var update = flag.Bool("update", false, "rewrite the expected units in testdata")

// Each file of testdata is a profile, host.toml, followed by the units it must give.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files (%v)", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(archive.Files) == 0 || archive.Files[0].Name != "host.toml" {
				t.Fatal("the first file is not host.toml")
			}
			units := RenderAll(load(t, archive.Files[0].Data))
			got := &txtar.Archive{Comment: archive.Comment, Files: archive.Files[:1:1]}
			for _, u := range units {
				got.Files = append(got.Files, txtar.File{Name: u.Name, Data: u.Text})
			}
			if *update {
				if err := os.WriteFile(path, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(txtar.Format(archive)), string(txtar.Format(got))); diff != "" {
				t.Errorf("the units differ (-want +got); if that is right: go test ./unitgen -update\n%s", diff)
			}
			for _, u := range units {
				if Edited(u.Text) {
					t.Errorf("%s counts as edited by hand", u.Name)
				}
				if s, err := ParseSection(u.Text); err != nil || UnitName(s.Instance) != u.Name {
					t.Errorf("%s: its section names %q (%v)", u.Name, s.Instance, err)
				}
			}
		})
	}
}

func load(t *testing.T, text []byte) *conf.Profile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "host.toml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	p, diags := conf.Load(path)
	if diags.HasErrors() {
		t.Fatalf("the profile is wrong:\n%v", diags)
	}
	p.Files = []string{"/etc/vllmhost/host.toml"}
	return p
}
