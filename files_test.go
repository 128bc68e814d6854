package vllmhost_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFiles holds every Go file to what does not show in imports.
func TestFiles(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, "vllmhost/")
		if slices.Contains([]string{"util", "common", "helper", "internal", "pkg"}, path.Base(name)) {
			t.Errorf("package %s: name it after what it does", name)
		}
		documented := false
		for _, file := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles, p.IgnoredGoFiles) {
			source, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if lines := bytes.Count(source, []byte("\n")); lines > 450 {
				t.Errorf("%s/%s has %d lines: more than one idea", name, file, lines)
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, source, parser.ParseComments)
			if err != nil {
				t.Errorf("%s/%s: %v", name, file, err)
				continue
			}
			documented = documented || tree.Doc != nil
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, use := range forbidden(tree, name+"/"+file) {
				t.Errorf("%s/%s uses %s", name, file, use)
			}
		}
		if !documented {
			t.Errorf("package %s has no comment that says what it owns and what not", name)
		}
	}
}

// forbidden returns what a file of the program uses and should not. Only term prints, and nothing happens before main.
func forbidden(file *ast.File, name string) []string {
	// main.go hands the streams to term; the simulation and the tests' host are programs of their own.
	mayPrint := slices.Contains([]string{"cmd/vllmhost/term", "cmd/vllmsim", "testhost", "cmd/testhost/nvidia-smi"}, path.Dir(name)) ||
		name == "cmd/vllmhost/main.go"
	var uses []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				uses = append(uses, "init: let main call it")
			}
		case *ast.SelectorExpr:
			from, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			prints := from.Name == "fmt" && strings.HasPrefix(n.Sel.Name, "Print") ||
				from.Name == "os" && (n.Sel.Name == "Stdout" || n.Sel.Name == "Stderr")
			if prints && !mayPrint {
				uses = append(uses, from.Name+"."+n.Sel.Name+": only cmd/vllmhost/term prints")
			}
		}
		return true
	})
	return uses
}
