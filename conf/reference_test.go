package conf

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"text/template"
)

const (
	referencePage  = "../docs/reference/profile.md"
	exampleProfile = "../packaging/host.toml.example"
)

// The reference of the profile and the example that is installed are written from the types: their doc comments, tags
// and defaults.
func TestReference(t *testing.T) {
	docs := readDocs(t)
	for _, page := range []struct{ template, file string }{
		{"testdata/reference/profile.md.tmpl", referencePage},
		{"testdata/reference/host.toml.tmpl", exampleProfile},
	} {
		tmpl, err := template.New(filepath.Base(page.template)).Funcs(docs.funcs(t)).ParseFiles(page.template)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := tmpl.Execute(&b, nil); err != nil {
			t.Fatal(err)
		}
		golden(t, page.file, b.String())
	}
}

// The example is right as it is installed, and with all of its keys in use.
func TestExampleProfile(t *testing.T) {
	host := secretsHost(t)
	p, diags := load(exampleProfile, host)
	if p == nil || len(diags) > 0 || len(p.Instances) > 0 {
		t.Fatalf("as installed:\n%s", diags)
	}
	text, err := os.ReadFile(exampleProfile)
	if err != nil {
		t.Fatal(err)
	}
	used := filepath.Join(t.TempDir(), "host.toml")
	write(t, used, regexp.MustCompile(`(?m)^#([^ \n])`).ReplaceAllString(string(text), "$1"))
	p, diags = load(used, host)
	if p == nil || len(diags) > 0 {
		t.Fatalf("with all keys:\n%s", diags)
	}
	in := p.Instances["kimi-int4"]
	if len(p.Instances) != 2 || in.TensorParallelSize != 8 || in.Probe.MinSingleTPS == 0 {
		t.Errorf("got %+v", in)
	}
	if !p.Conflicts("kimi-int4", "minimax") {
		t.Error("the two instances do not conflict")
	}
}

// keyDoc is what types.go says about one key.
type keyDoc struct {
	key, words, example string
	field               reflect.StructField
}

// typeDocs holds the keys of each table, and what its type is said to be.
type typeDocs struct {
	about map[string]string
	keys  map[string][]keyDoc
}

// readDocs reads the doc comments of types.go. Every key must have words and an example.
func readDocs(t *testing.T) typeDocs {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "types.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	docs := typeDocs{map[string]string{}, map[string][]keyDoc{}}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		spec := gen.Specs[0].(*ast.TypeSpec)
		name := spec.Name.Name
		docs.about[name] = gen.Doc.Text()
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			field, _ := tables()[name].FieldByName(f.Names[0].Name)
			if field.Tag.Get("toml") == "-" {
				continue
			}
			words, example, _ := strings.Cut(f.Doc.Text(), "\n\n")
			k := keyDoc{key: field.Tag.Get("toml"), words: strings.TrimSpace(words), example: strings.TrimSpace(example), field: field}
			if isTable(field.Type) {
				continue
			}
			if k.words == "" || !strings.HasPrefix(k.example, k.key+" = ") {
				t.Errorf("%s.%s has no words, or no example", name, field.Name)
			}
			docs.keys[name] = append(docs.keys[name], k)
		}
	}
	return docs
}

func tables() map[string]reflect.Type {
	return map[string]reflect.Type{
		"Profile": reflect.TypeFor[Profile](), "Host": reflect.TypeFor[Host](), "Engine": reflect.TypeFor[Engine](),
		"Model": reflect.TypeFor[Model](), "Instance": reflect.TypeFor[Instance](), "Probe": reflect.TypeFor[Probe](),
	}
}

// isTable reports whether a field is a table with a section of its own.
func isTable(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[GPUs]() ||
		t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Pointer
}

// defaults returns a table without keys.
func defaults(table string) reflect.Value {
	in := &Instance{}
	setDefaults(in)
	model := &Model{}
	setDefaults(model)
	return map[string]reflect.Value{
		"Profile": reflect.ValueOf(Profile{}), "Host": reflect.ValueOf(defaultHost()), "Engine": reflect.ValueOf(Engine{}),
		"Model": reflect.ValueOf(*model), "Instance": reflect.ValueOf(*in), "Probe": reflect.ValueOf(in.Probe),
	}[table]
}

// defaultText says what a key is when it is not given.
func defaultText(table string, k keyDoc) string {
	if d := k.field.Tag.Get("default"); d != "" {
		return d
	}
	v := defaults(table).FieldByIndex(k.field.Index)
	switch x := v.Interface().(type) {
	case []string:
		if len(x) == 0 {
			return "none"
		}
		return fmt.Sprintf("`[%q]`", strings.Join(x, `", "`))
	case GPUCount:
		return fmt.Sprintf("`%q`", x)
	case Size, Duration, Percent:
		return fmt.Sprintf("`\"%s\"`", x)
	case bool, int:
		return fmt.Sprintf("`%v`", x)
	case float64:
		return fmt.Sprintf("`%v`", x)
	}
	if v.Kind() == reflect.String && v.Len() > 0 {
		return fmt.Sprintf("`%q`", v.String())
	}
	return "none"
}

// typeText says what a key wants.
func typeText(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[GPUCount]():
		return `number or "auto"`
	case reflect.TypeFor[GPUs]():
		return `"all", or list of numbers or of strings`
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[Duration]():
		return "duration"
	case reflect.TypeFor[Percent]():
		return "percentage"
	case reflect.TypeFor[Args]():
		return "table"
	case reflect.TypeFor[[]string]():
		return "list of strings"
	case reflect.TypeFor[map[string]string]():
		return "table of strings"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Uint16, reflect.Float64:
		return "number"
	}
	return "string"
}

// funcs are what the templates call.
func (docs typeDocs) funcs(t *testing.T) template.FuncMap {
	return template.FuncMap{
		"about": func(table string) string {
			_, words, _ := strings.Cut(strings.TrimSpace(docs.about[table]), ": ")
			return strings.ToUpper(words[:1]) + words[1:]
		},
		"keys":       docs.keysPage,
		"section":    docs.section,
		"maxProfile": func() string { return Size(maxProfile).String() },
		"maxDepth":   func() int { return maxDepth },
		"smallest": func() string {
			text, err := os.ReadFile("testdata/valid/smallest.toml")
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		},
		"problem": func() string {
			_, diags := Load("testdata/invalid/unknown-key.toml")
			return strings.ReplaceAll(diags[0].String(), "testdata/invalid/unknown-key.toml", "/etc/vllmhost/host.toml")
		},
		"ownFlags": func() string {
			var b strings.Builder
			for _, f := range ownFlags() {
				fmt.Fprintf(&b, "| `%s` | %s |\n", strings.ReplaceAll(f.flags, " ", "`, `"), f.instead)
			}
			return b.String()
		},
	}
}

// keysPage writes the keys of a table, each under a heading of the level.
func (docs typeDocs) keysPage(table string, level int) string {
	var b strings.Builder
	for _, k := range docs.keys[table] {
		fmt.Fprintf(&b, "%s `%s`\n\n", strings.Repeat("#", level), k.key)
		def := "default: " + defaultText(table, k)
		if strings.HasPrefix(defaultText(table, k), "required") {
			def = defaultText(table, k)
		}
		fmt.Fprintf(&b, "*%s; %s*\n\n%s\n\n```toml\n%s\n```\n\n", typeText(k.field.Type), def, k.words, k.example)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// section writes the keys of a table as comments. A key that another one excludes stays a comment for good.
func (docs typeDocs) section(table, header string) string {
	var b strings.Builder
	_, words, _ := strings.Cut(strings.TrimSpace(docs.about[table]), ": ")
	fmt.Fprintf(&b, "# %s%s\n#[%s]\n", strings.ToUpper(words[:1]), strings.ReplaceAll(words[1:], "\n", "\n# "), header)
	for _, k := range docs.keys[table] {
		mark := "#"
		if k.key == "uds" {
			mark = "# "
		}
		def := ""
		if d := defaultText(table, k); d != "none" && !strings.HasPrefix(d, "required") {
			def = "\n# Default: " + strings.ReplaceAll(d, "`", "") + "."
		}
		fmt.Fprintf(&b, "\n# %s%s\n%s%s\n", strings.ReplaceAll(k.words, "\n", "\n# "), def, mark, k.example)
	}
	return b.String()
}
