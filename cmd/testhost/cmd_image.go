package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"vllmhost/testhost"
)

func newImageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "image",
		Short: "Make the cached images of all releases",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := testhost.Open(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			lab.CloseOnSignal()
			for _, release := range testhost.Releases {
				dir, err := lab.MakeImage(cmd.Context(), release)
				if err != nil {
					return joinClose(err, lab)
				}
				fmt.Fprintln(cmd.OutOrStdout(), dir)
			}
			return lab.Close()
		},
	}
}

func newCleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "Remove the cached images and whatever killed runs left",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return testhost.Clean() },
	}
}
