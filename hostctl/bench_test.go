package hostctl

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vllmhost/conf"
	"vllmhost/hostctl/systemd/systemdtest"
)

// BenchmarkApplyUnchanged applies a profile of 100 instances that is already applied, with a scripted systemd; the
// profile is read each time, as the command does. The budget is 50 ms.
func BenchmarkApplyUnchanged(b *testing.B) {
	server := systemdtest.Start(b)
	root := b.TempDir()
	if err := os.MkdirAll(filepath.Join(root, unitDir), 0o755); err != nil {
		b.Fatal(err)
	}
	host, err := Open(context.Background(), Options{Root: root, BusAddress: server.Address()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(host.Close)
	var text strings.Builder
	text.WriteString("schema = 1\n[host]\ngpus = 0\n[engine.cpu]\ncommand = \"/opt/vllm/bin/vllm\"\n[model.tiny]\npath = \"/srv/models/tiny\"\n")
	for i := range 100 {
		fmt.Fprintf(&text, "[instance.i%d]\nmodel = \"tiny\"\nengine = \"cpu\"\nport = %d\n", i, 8000+i)
	}
	path := filepath.Join(root, "host.toml")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	apply := func() Applied {
		profile, problems := conf.Load(path)
		if problems.HasErrors() {
			b.Fatal(problems)
		}
		done, err := host.Apply(context.Background(), profile, ApplyOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return done
	}
	if !apply().Changed() {
		b.Fatal("the first apply changed nothing")
	}
	for b.Loop() {
		if apply().Changed() {
			b.Fatal("applied again, it changes something")
		}
	}
}
