package main

import (
	"flag"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write the man pages, the reference and the golden parts of scripts")

// TestMain makes this test binary the program vllmhost when a script calls it by that name.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vllmhost": main})
}

// TestScripts tells stories of users; each is a file of testdata.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
	})
}
