package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// The man pages and the reference are made of the same sections as the help, kept in the tree for those who read it
// there, and compared with the program by this test. To write them: make man.
func TestDocs(t *testing.T) {
	wantPages := []string{}
	var reference strings.Builder
	reference.WriteString("# Commands\n\nWritten from the program's own help by `make man`.\n")
	eachCommand(tree(), func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		page := filepath.Join("../../packaging/man", pageName(cmd)+".8")
		wantPages = append(wantPages, page)
		compare(t, page, manPage(cmd))
		reference.WriteString(markdown(cmd))
	})
	compare(t, "../../docs/reference/cli.md", reference.String())
	compare(t, "../../docs/reference/exit-codes.md", exitCodes())

	pages, err := filepath.Glob("../../packaging/man/*.8")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if !slices.Contains(wantPages, page) {
			t.Errorf("%s belongs to no command", page)
		}
	}
}

// compare holds the file against want, or writes it with -update.
func compare(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("%v; to write it: make man", err)
		return
	}
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("%s is not what the program says (-program +file); to write it: make man\n%s", file, diff)
	}
}

// pageName is the name of a command's man page without its section: vllmhost-models-fetch.
func pageName(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// manPage returns the man page of a command in the man(7) language.
func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".\\\" Written from the program's own help.\n")
	fmt.Fprintf(&b, ".TH %s 8 \"\" vllmhost \"vllmhost manual\"\n", strings.ToUpper(pageName(cmd)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", pageName(cmd), roff(lowerFirst(cmd.Short)))
	for _, s := range describe(cmd) {
		title := strings.ToUpper(s.title)
		if title == "USAGE" {
			title = "SYNOPSIS" // man-pages(7)
		}
		fmt.Fprintf(&b, ".SH %s\n", title)
		if len(s.lines) > 0 {
			b.WriteString(".nf\n")
			for _, line := range s.lines {
				b.WriteString(roff(line) + "\n")
			}
			b.WriteString(".fi\n")
		}
		for i, paragraph := range paragraphs(s.text) {
			if i > 0 {
				b.WriteString(".PP\n")
			}
			b.WriteString(roffText(paragraph))
		}
		for _, r := range s.rows {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s", roff(r.term), roffText(r.text))
		}
	}
	if related := relatedPages(cmd); len(related) > 0 {
		b.WriteString(".SH SEE ALSO\n" + strings.Join(related, ",\n") + "\n")
	}
	return b.String()
}

// relatedPages returns the pages of the command above and of those below.
func relatedPages(cmd *cobra.Command) []string {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, fmt.Sprintf("\\fB%s\\fR(8)", roff(pageName(cmd.Parent()))))
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			pages = append(pages, fmt.Sprintf("\\fB%s\\fR(8)", roff(pageName(sub))))
		}
	}
	return append(pages, "\\fBsystemctl\\fR(1)")
}

// roff makes a line of text safe for man(7): backslashes and hyphens mean themselves (a bare hyphen may be shown as a
// typographic one, which nobody can paste into a shell), and no line begins a request.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `~`, `\(ti`, `^`, `\(ha`, "`", "\\(ga").Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}

// roffText returns a paragraph as source lines.
func roffText(paragraph string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(wrap(paragraph, helpWidth, 0), "\n") {
		b.WriteString(roff(line) + "\n")
	}
	return b.String()
}

func lowerFirst(s string) string {
	return strings.ToLower(s[:1]) + s[1:]
}

// markdown returns the part of the reference that is about one command.
func markdown(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n%s.\n", cmd.CommandPath(), cmd.Short)
	for _, s := range describe(cmd) {
		switch s.title {
		case "usage":
			fmt.Fprintf(&b, "\n```\n%s\n```\n", strings.Join(s.lines, "\n"))
			continue
		case "description":
			fmt.Fprintf(&b, "\n%s\n", strings.Join(paragraphs(s.text), "\n\n"))
			continue
		case "flags of every command":
			if cmd.HasParent() {
				continue // said once, at the top
			}
		}
		fmt.Fprintf(&b, "\n%s:\n\n", upperFirst(s.title))
		if len(s.lines) > 0 {
			fmt.Fprintf(&b, "```\n%s\n```\n", strings.Join(s.lines, "\n"))
		}
		if len(s.rows) > 0 {
			b.WriteString("| | |\n|---|---|\n")
		}
		for _, r := range s.rows {
			fmt.Fprintf(&b, "| `%s` | %s |\n", r.term, strings.ReplaceAll(r.text, "|", `\|`))
		}
	}
	return b.String()
}

func upperFirst(s string) string {
	return strings.ToUpper(s[:1]) + s[1:]
}

// exitCodes returns the reference of exit statuses: what each means, and which commands end with it.
func exitCodes() string {
	var b strings.Builder
	b.WriteString(`# Exit statuses

Written from the program's own table by ` + "`make man`" + `. A number keeps its meaning for ever. 3 and 4 mirror
` + "`systemctl status`" + ` where the command is ` + "`vllmhost status`" + `. With ` + "`--json`" + ` an error is an object
of schema ` + "`vllmhost/error/v1`" + ` on stdout, with the fields ` + "`error`, `hints` and `exit_code`" + `.

| status | meaning | commands |
|---|---|---|
`)
	for e := exit(0); int(e) < exitCount; e++ {
		code, meaning := exitTable(e)
		var users []string
		every := true
		eachCommand(tree(), func(cmd *cobra.Command) {
			switch {
			case cmd.Hidden || !cmd.HasParent():
			case slices.Contains(exitRows(cmd), row{fmt.Sprint(code), meaning}):
				users = append(users, strings.TrimPrefix(cmd.CommandPath(), "vllmhost "))
			default:
				every = false
			}
		})
		commands := strings.Join(users, ", ")
		switch {
		case every:
			commands = "every command"
		case len(users) == 0:
			commands = "none yet"
		}
		fmt.Fprintf(&b, "| %d | %s | %s |\n", code, meaning, commands)
	}
	return b.String()
}
