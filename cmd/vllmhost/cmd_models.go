package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"vllmhost/hostctl"
	"vllmhost/hostctl/gate"
	"vllmhost/hostctl/models"
	"vllmhost/unitgen"
)

func newModelsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "models",
		Short:       "Tell the truth about model directories",
		Long:        "Says whether the files of a model are all there and whole.",
		Example:     "  vllmhost models verify /srv/models/Kimi-K2.5",
		Annotations: exits(exitDone, exitFailed),
		GroupID:     groupServing,
		RunE:        func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newModelsVerifyCommand(a))
	return cmd
}

func newModelsVerifyCommand(a *app) *cobra.Command {
	var unit string
	var quick bool
	cmd := &cobra.Command{
		Use:   "verify [DIR...]",
		Short: "Check that a model is complete",
		Long: `Looks at every file that vLLM would load: that it is there, and as long as its own header says. It reads headers, not
weights, and needs no privileges. Units run it before each start, as the engine's user, with --unit.`,
		Example: `  vllmhost models verify /srv/models/Kimi-K2.5
  vllmhost models verify --unit kimi-int4`,
		Annotations: exits(exitDone, exitFailed),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs := args
			if unit != "" {
				section, err := hostctl.InstalledSection("", unit)
				if err != nil {
					return fail(exitFailed, fmt.Errorf("cannot verify the model of %q: %v", unit, err))
				}
				if skipsModel(section) {
					a.ui.Line("%s: not checked, as its administrator wants", section.Model)
					return nil
				}
				dirs = append(dirs, section.Model)
			}
			if len(dirs) == 0 {
				return usageError(cmd, "%s needs a directory, or --unit", cmd.CommandPath())
			}
			return verifyModels(cmd, a, dirs)
		},
	}
	cmd.Flags().StringVar(&unit, "unit", "", "check the model of the unit of instance `NAME`")
	cmd.Flags().BoolVar(&quick, "quick", true, "read headers and sizes only")
	return cmd
}

// skipsModel reports whether an instance is to start without a look at its model: the profile allows it, or the swap that
// starts it was told to.
func skipsModel(s unitgen.Section) bool {
	claims := gate.Claims{Dir: hostctl.RunDir}
	return slices.Contains(append(claims.Skipped(s.Instance), s.Allow...), gate.CheckModel)
}

func verifyModels(cmd *cobra.Command, a *app, dirs []string) error {
	report := hostctl.VerifyReport{Schema: "vllmhost/models-verify/v1", OK: true, Models: []models.Report{}}
	for _, dir := range dirs {
		r, err := models.Check(cmd.Context(), dir)
		if err != nil {
			return fail(exitFailed, err)
		}
		report.OK = report.OK && r.State == models.Complete
		report.Models = append(report.Models, r)
		a.ui.Line("%s: %s, %s", dir, r.State, r.Summary())
		for _, p := range r.Problems {
			a.ui.Line("  %s", p)
		}
	}
	switch {
	case a.ui.JSONOnly:
		if err := a.ui.JSON(report); err != nil || report.OK {
			return err
		}
		return end(exitFailed)
	case !report.OK:
		return fail(exitFailed, errors.New("the model is not complete"))
	}
	return nil
}
