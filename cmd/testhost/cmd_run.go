package main

import (
	"github.com/spf13/cobra"

	"vllmhost/testhost"
)

func newRunCommand() *cobra.Command {
	var flags hostFlags
	cmd := &cobra.Command{
		Use:     "run COMMAND [ARG]...",
		Short:   "Run one command inside a new host, and end as it does",
		Example: `  testhost run --release bookworm -- sh -c 'vllmhost apply && vllmhost status'`,
		Args:    cobra.MinimumNArgs(1),
	}
	flags.add(cmd)
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		lab, h, err := flags.boot(cmd)
		if err != nil {
			return err
		}
		streams := testhost.Streams{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), Env: environment()}
		code, err := h.RunIO(cmd.Context(), streams, args...)
		if err != nil {
			return joinClose(err, lab)
		}
		if err := lab.Close(); err != nil {
			return err
		}
		if code != 0 {
			return exitStatus(code)
		}
		return nil
	}
	return cmd
}
