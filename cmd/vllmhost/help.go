package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newHelpCommand is hidden: --help, which every command has, says the same.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "help [COMMAND...]",
		Short:       "Say what a command does",
		Long:        "Prints what --help of the command prints.",
		Example:     "  vllmhost help swap",
		Annotations: exits(exitDone),
		Hidden:      true,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(about, rest[0])
			}
			return about.Help()
		},
	}
}

// section is one part of a command's description. The help, the man page and the reference are made of the same ones.
type section struct {
	title string
	rows  []row    // aligned pairs, or
	text  string   // running text, or
	lines []string // lines to be shown as they are
}

// row is a term and its explanation.
type row struct{ term, text string }

// describe returns the sections of a command, in their order.
func describe(cmd *cobra.Command) []section {
	sections := []section{
		{title: "usage", lines: []string{useLine(cmd)}},
		{title: "description", text: cmd.Long},
	}
	for _, group := range cmd.Groups() {
		sections = append(sections, section{title: group.Title, rows: commandRows(cmd, group.ID)})
	}
	if rows := commandRows(cmd, ""); len(rows) > 0 {
		title := "commands"
		if len(cmd.Groups()) > 0 {
			title = "further commands"
		}
		sections = append(sections, section{title: title, rows: rows})
	}
	sections = append(sections,
		section{title: "examples", lines: strings.Split(strings.ReplaceAll(strings.TrimSpace(cmd.Example), "\n  ", "\n"), "\n")},
		section{title: "flags", rows: flagRows(cmd.LocalNonPersistentFlags())},
		section{title: "flags of every command", rows: flagRows(globalFlags(cmd))},
		section{title: "exit status", rows: exitRows(cmd)},
	)
	if !cmd.HasParent() {
		sections = append(sections, section{title: "files", rows: []row{
			{defaultProfile, "the profile"},
			{"/etc/vllmhost/host.d/*.toml", "further parts of the profile, merged in the order of their names"},
			{"/etc/vllmhost/secrets/", "files with API keys and tokens, for root only"},
			{"/etc/systemd/system/vllm-NAME.service", "the unit of the instance NAME"},
			{"/var/lib/vllmhost/pending/", "definitions that the profile asks for and no swap has proven yet"},
			{"/var/lib/vllmhost/operations/", "the records of operations, one file each"},
		}})
	}
	var filled []section
	for _, s := range sections {
		if len(s.rows) > 0 || s.text != "" || len(s.lines) > 0 {
			filled = append(filled, s)
		}
	}
	return filled
}

// globalFlags returns the flags that cmd shares with every other command.
func globalFlags(cmd *cobra.Command) *pflag.FlagSet {
	return cmd.Root().PersistentFlags()
}

// helpText returns what --help prints.
func helpText(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", cmd.CommandPath(), cmd.Short)
	for _, s := range describe(cmd) {
		fmt.Fprintf(&b, "\n%s\n", strings.ToUpper(s.title))
		for _, line := range s.lines {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		for i, paragraph := range paragraphs(s.text) {
			if i > 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "  %s\n", wrap(paragraph, helpWidth, 2))
		}
		indent := 0
		for _, r := range s.rows {
			indent = max(indent, len(r.term)+4)
		}
		for _, r := range s.rows {
			fmt.Fprintf(&b, "  %-*s%s\n", indent-2, r.term, wrap(r.text, helpWidth, indent))
		}
	}
	return b.String()
}

// helpWidth is the number of columns every terminal has.
const helpWidth = 80

// paragraphs divides running text at its empty lines and joins the lines between them.
func paragraphs(text string) []string {
	var list []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if joined := strings.Join(strings.Fields(paragraph), " "); joined != "" {
			list = append(list, joined)
		}
	}
	return list
}

// wrap breaks a paragraph into lines that end before the column width. All but the first are indented.
func wrap(paragraph string, width, indent int) string {
	var b strings.Builder
	column := indent
	for i, word := range strings.Fields(paragraph) {
		switch length := utf8.RuneCountInString(word); {
		case i == 0:
			column += length
		case column+1+length > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent + length
		default:
			b.WriteString(" ")
			column += 1 + length
		}
		b.WriteString(word)
	}
	return b.String()
}

// useLine returns how to call a command.
func useLine(cmd *cobra.Command) string {
	name, args, _ := strings.Cut(cmd.Use, " ")
	if parent := cmd.Parent(); parent != nil {
		name = parent.CommandPath() + " " + name
	}
	switch {
	case !cmd.HasParent():
		return name + " [FLAG...] COMMAND"
	case cmd.HasSubCommands():
		return name + " [FLAG...] [COMMAND]"
	}
	return strings.TrimSpace(name + " [FLAG...] " + args)
}

func commandRows(cmd *cobra.Command, group string) []row {
	var rows []row
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.GroupID == group {
			rows = append(rows, row{strings.TrimPrefix(sub.CommandPath(), cmd.Root().Name()+" "), sub.Short})
		}
	}
	return rows
}

func flagRows(flags *pflag.FlagSet) []row {
	var rows []row
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		term := "--" + f.Name
		if f.Shorthand != "" {
			term = "-" + f.Shorthand + ", " + term
		}
		switch {
		case f.NoOptDefVal != "" && f.Value.Type() != "bool":
			term += "[=" + strings.ToUpper(value) + "]"
		case value != "":
			term += "=" + strings.ToUpper(value)
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0s" && f.DefValue != "0" {
			usage += " (default " + f.DefValue + ")"
		}
		rows = append(rows, row{term, usage})
	})
	return rows
}

func exitRows(cmd *cobra.Command) []row {
	var rows []row
	for line := range strings.Lines(cmd.Annotations[exitKey]) {
		code, meaning, _ := strings.Cut(strings.TrimSpace(line), " ")
		rows = append(rows, row{code, strings.TrimSpace(meaning)})
	}
	return rows
}
