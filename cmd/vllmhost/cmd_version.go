package main

import (
	"runtime"

	"github.com/spf13/cobra"
)

// version is set by the linker when a release is built.
var version = "0.1.0-dev"

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of vllmhost",
		Long:  "Prints the version of the program and of the Go it was built with.",
		Example: `  vllmhost version
  vllmhost version --json`,
		Annotations: exits(exitDone),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.ui.JSONOnly {
				return a.ui.JSON(struct {
					Schema  string `json:"schema"`
					Version string `json:"version"`
					Go      string `json:"go"`
				}{"vllmhost/version/v1", version, runtime.Version()})
			}
			a.ui.Line("vllmhost %s (%s)", version, runtime.Version())
			return nil
		},
	}
}
