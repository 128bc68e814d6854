package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// An act is one step of a demo script, whose lines are:
//
//	# text         shown to the viewer
//	$ command      shown as typed, and run inside by bash; its output is shown
//	exit STATUS    how the command above ends, 0 without; not shown
//	want REGEXP    what its output matches, as in (?m); not shown
//	reboot         the host is rebooted, as by `systemctl reboot`
//	powercut       the host loses power and boots again
//	-- text        a remark to readers of the script
//
// Empty lines divide the acts and are shown.
type act struct {
	line int
	kind actKind
	text string // of a comment or a command
	exit int
	want []*regexp.Regexp
}

type actKind int

const (
	actComment actKind = iota
	actCommand
	actReboot
	actPowerCut
	actBlank
)

func parseScript(text string) ([]act, error) {
	var acts []act
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		line = strings.TrimRight(line, " \t")
		word, rest, _ := strings.Cut(line, " ")
		next := act{line: i + 1, text: rest}
		switch word {
		case "":
			next.kind = actBlank
		case "#":
			next.kind = actComment
		case "$":
			next.kind = actCommand
		case "reboot":
			next.kind = actReboot
		case "powercut":
			next.kind = actPowerCut
		case "--":
			continue
		case "exit", "want":
			if len(acts) == 0 || acts[len(acts)-1].kind != actCommand {
				return nil, fmt.Errorf("demo line %d: %q follows no command", i+1, line)
			}
			if err := acts[len(acts)-1].expect(word, rest); err != nil {
				return nil, fmt.Errorf("demo line %d: %v", i+1, err)
			}
			continue
		default:
			return nil, fmt.Errorf("demo line %d: unknown %q", i+1, word)
		}
		acts = append(acts, next)
	}
	return acts, nil
}

// expect adds what a command has to do.
func (a *act) expect(word, rest string) (err error) {
	if word == "exit" {
		a.exit, err = strconv.Atoi(rest)
		return err
	}
	re, err := regexp.Compile("(?m)" + rest)
	a.want = append(a.want, re)
	return err
}
