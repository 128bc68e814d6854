package main

import (
	"github.com/spf13/cobra"
)

// newCompletionCommand is hidden: the package installs what it prints, and nobody types it.
func newCompletionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "completion SHELL",
		Short:       "Print the completion script of a shell",
		Long:        "Prints the script that lets a shell complete commands and flags of vllmhost. SHELL is bash, zsh or fish.",
		Example:     `  vllmhost completion bash > /usr/share/bash-completion/completions/vllmhost`,
		Annotations: exits(exitDone),
		Hidden:      true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), a.ui.Out()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return usageError(cmd, "unknown shell %q; known are bash, zsh, fish", args[0])
		},
	}
}
