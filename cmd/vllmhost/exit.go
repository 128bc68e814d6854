package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vllmhost/cmd/vllmhost/term"
)

// exit is one way for the program to end.
type exit int

const (
	exitDone exit = iota
	exitFailed
	exitChanged
	exitRolledBack
	exitRollbackFailed
	exitLocked
	exitSlow
	exitUsage
	exitProfile
	exitNotActive
	exitNoInstance
	exitDetached
	exitAgain
	exitCount int = iota
)

// exitTable is the one table of exit statuses. They stay below 124, from where shells and systemd have their own (128 +
// signal; 200 to 243, systemd.exec(5)); 130 is what a shell says of a program that Ctrl-C ended. 64, 75 and 78 are
// EX_USAGE, EX_TEMPFAIL and EX_CONFIG of sysexits(3). The second 3 and 4 mirror systemctl status, and only the status
// command ends with them.
func exitTable(e exit) (code int, meaning string) {
	row := [exitCount]struct {
		code    int
		meaning string
	}{
		exitDone:           {0, "done"},
		exitFailed:         {1, "refused or failed; nothing was changed"},
		exitChanged:        {2, "done, and something was changed (only with --detailed-exitcode)"},
		exitRolledBack:     {3, "failed or cancelled, and rolled back"},
		exitRollbackFailed: {4, "the rollback failed, or nothing serves: act now"},
		exitLocked:         {5, "another operation is running"},
		exitSlow:           {6, "healthy, but slower than allowed"},
		exitUsage:          {64, "the command line is wrong"},
		exitProfile:        {78, "the profile is wrong"},
		exitNotActive:      {3, "not serving"},
		exitNoInstance:     {4, "no such instance"},
		exitDetached:       {130, "Ctrl-C: the operation goes on"},
		exitAgain:          {75, "cannot work at the moment; systemd tries again"},
	}[e]
	return row.code, row.meaning
}

// exitError ends a command with another status than exitDone.
type exitError struct {
	exit  exit
	err   error // nil: the command has said it all
	hints []string
}

func (e *exitError) Error() string {
	if e.err == nil {
		code, meaning := exitTable(e.exit)
		return fmt.Sprintf("exit status %d: %s", code, meaning)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// fail ends a command: err says why, each hint what to type next.
func fail(e exit, err error, hints ...string) error {
	return &exitError{exit: e, err: err, hints: hints}
}

// end ends a command that has printed all there is to say.
func end(e exit) error {
	if e == exitDone {
		return nil
	}
	return &exitError{exit: e}
}

// report prints the error a command ended with, if any, and returns the exit status. An error that no command gave an
// exit to is exitFailed.
func report(ui *term.Printer, args []string, err error) int {
	var ending *exitError
	switch {
	case err == nil:
		ending = &exitError{exit: exitDone}
	case !errors.As(err, &ending):
		ending = &exitError{exit: exitFailed, err: err}
	}
	if ending.exit == exitUsage && slices.Contains(args, "--json") {
		ui.JSONOnly = true // the wrong part of the command line may stand before it
	}
	code, _ := exitTable(ending.exit)
	if ending.err != nil {
		// err rather than ending.err: it has what was wrapped around.
		ui.Error(err, code, ending.hints...)
	}
	if err := ui.Failed(); err != nil && code == 0 {
		code, _ = exitTable(exitFailed)
		ui.Error(fmt.Errorf("cannot write the output: %v", err), code)
	}
	return code
}

// usageError ends a command whose command line is wrong.
func usageError(cmd *cobra.Command, format string, args ...any) error {
	return fail(exitUsage, fmt.Errorf(format, args...), cmd.CommandPath()+" --help")
}

// flagError words what pflag found wrong.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usageError(cmd, "%v", err)
	}
	name := unknown.GetSpecifiedName()
	if len(name) == 1 {
		return usageError(cmd, "unknown flag -%s", name)
	}
	// cobra knows which names resemble each other, but only for commands.
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return usageError(cmd, "unknown flag --%s%s", name, didYouMean("--", names.SuggestionsFor(name)))
}

// unknownCommand ends the program because cmd has no command of that name.
func unknownCommand(cmd *cobra.Command, name string) error {
	return usageError(cmd, "unknown command %q%s", cmd.CommandPath()+" "+name, didYouMean("", cmd.SuggestionsFor(name)))
}

func didYouMean(prefix string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("; did you mean %s%s?", prefix, strings.Join(names, ", "+prefix))
}

// exitKey is where a command keeps the lines of its EXIT STATUS, in cobra.Command.Annotations.
const exitKey = "exit status"

// exits returns the annotations of a command that may end with these, and with exitUsage like every command.
func exits(all ...exit) map[string]string {
	all = append(all, exitUsage)
	slices.SortStableFunc(all, func(a, b exit) int {
		codeA, _ := exitTable(a)
		codeB, _ := exitTable(b)
		return codeA - codeB
	})
	var lines []string
	for _, e := range slices.Compact(all) {
		code, meaning := exitTable(e)
		lines = append(lines, fmt.Sprintf("%-3d %s", code, meaning))
	}
	return map[string]string{exitKey: strings.Join(lines, "\n")}
}
