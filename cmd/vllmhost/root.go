package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"vllmhost/cmd/vllmhost/term"
)

// app is what every command works with.
type app struct {
	ui      *term.Printer // its JSONOnly is the --json flag
	profile string        // the --profile flag
}

// run runs the program with the arguments after its name and returns its exit status.
func run(ctx context.Context, args []string, ui *term.Printer) int {
	root := newRootCommand(&app{ui: ui})
	root.SetArgs(args)
	return report(ui, args, root.ExecuteContext(ctx))
}

// The groups of commands in the help of the program.
const (
	groupProfile = "profile"
	groupServing = "serving"
	groupUnits   = "units"
)

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "vllmhost",
		Short: "Run vLLM on this host",
		Long: `One profile, ` + defaultProfile + `, describes the engines, models and instances of this host.
vllmhost turns it into systemd units and moves the host from one model to another so that it always ends in a proven
state: the new model serving, or the old one serving again.`,
		Example: `  vllmhost check
  vllmhost apply
  vllmhost swap kimi-int4
  vllmhost status`,
		Annotations: exits(exitDone, exitFailed, exitChanged, exitRolledBack, exitRollbackFailed, exitLocked,
			exitProfile),
		Version: version,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cmd.Help()
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddGroup(
		&cobra.Group{ID: groupProfile, Title: "profile"},
		&cobra.Group{ID: groupServing, Title: "serving"},
		&cobra.Group{ID: groupUnits, Title: "called by units"},
	)
	root.AddCommand(
		newCheckCommand(a),
		newApplyCommand(a),
		newSwapCommand(a),
		newRollbackCommand(a),
		newStatusCommand(a),
		newHistoryCommand(a),
		newCleanCommand(a),
		newModelsCommand(a),
		newGuardCommand(a),
		newAwaitCommand(a),
		newOperateCommand(a),
		newRecoverCommand(a),
		newVersionCommand(a),
		newCompletionCommand(a),
	)
	help := newHelpCommand()
	root.AddCommand(help)
	root.SetHelpCommand(help) // instead of cobra's own

	root.Flags().Bool("version", false, "print the version and end")
	flags := root.PersistentFlags()
	flags.StringVar(&a.profile, "profile", defaultProfile, "read the profile from `FILE` and from host.d beside it")
	flags.BoolVar(&a.ui.JSONOnly, "json", false, "print JSON and nothing else on stdout")

	prepare(root, a)
	return root
}

// defaultProfile is the host profile of this host.
const defaultProfile = "/etc/vllmhost/host.toml"

// prepare gives root and the commands below it what all of them share.
func prepare(root *cobra.Command, a *app) {
	root.SetOut(a.ui.Out())
	root.SetErr(a.ui.Err())
	root.SetVersionTemplate("vllmhost {{.Version}}\n")
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { a.ui.Text(helpText(cmd)) })
	root.CompletionOptions.DisableDefaultCmd = true // newCompletionCommand is ours
	root.SetFlagErrorFunc(flagError)
	eachCommand(root, func(cmd *cobra.Command) {
		cmd.SuggestionsMinimumDistance = 2
		cmd.Flags().SortFlags = false
		cmd.Flags().BoolP("help", "h", false, "say what the command does and end")
		if cmd.Args == nil {
			cmd.Args = checkArgs
		}
	})
}

// eachCommand calls do for cmd and every command below it.
func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, do)
	}
}

// checkArgs holds the arguments against the ones that the command's Use line names: NAME is needed, NAME... needs one or
// more, [NAME] may be left out, [NAME...] may be any number.
func checkArgs(cmd *cobra.Command, args []string) error {
	if cmd.HasSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	rest := args
	for _, want := range strings.Fields(cmd.Use)[1:] {
		name := strings.Trim(want, "[].")
		if len(rest) == 0 && !strings.HasPrefix(want, "[") {
			return usageError(cmd, "%s needs an argument: %s", cmd.CommandPath(), name)
		}
		if strings.Contains(want, "...") {
			return nil
		}
		rest = rest[min(1, len(rest)):]
	}
	if len(rest) > 0 {
		return usageError(cmd, "%s does not take the argument %q", cmd.CommandPath(), rest[0])
	}
	return nil
}
