// Testhost boots disposable Debian hosts with the package installed: a prompt
// inside one, the demo, one command. It owns the terminal's side; package
// testhost does the booting. It is for developers and is not packaged.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := newRootCommand()
	err := root.Execute()
	var status exitStatus
	if errors.As(err, &status) {
		os.Exit(int(status))
	}
	if err != nil {
		fmt.Fprintln(root.ErrOrStderr(), "testhost: error:", err)
		os.Exit(1)
	}
}

// exitStatus ends the program as a command inside a host has ended.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "testhost",
		Short:         "Boot disposable Debian hosts with a real systemd",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newShellCommand(), newRunCommand(), newDemoCommand(), newImageCommand(), newCleanCommand())
	return root
}
