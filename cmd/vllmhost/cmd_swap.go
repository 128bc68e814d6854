package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"vllmhost/hostctl"
)

func newSwapCommand(a *app) *cobra.Command {
	var o hostctl.SwapOptions
	var onFailure string
	cmd := &cobra.Command{
		Use:   "swap NAME...",
		Short: "Move the host to other instances",
		Long: `Stops what conflicts with the named instances (the same GPUs, or the same port), starts them, proves that they serve, and
makes them what starts at boot. If a step fails, all is undone and what served before serves again. An instance that
serves already is left alone, or restarted if a new definition of it is pending.`,
		Example: `  vllmhost swap kimi-int4
  vllmhost swap --dry-run kimi-int4
  vllmhost swap --json minimax embed`,
		Annotations: exits(exitDone, exitFailed, exitRolledBack, exitRollbackFailed, exitLocked),
		GroupID:     groupServing,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch onFailure {
			case "rollback", "stay":
				o.StayOnFailure = onFailure == "stay"
			default:
				return usageError(cmd, "--on-failure is rollback or stay, not %q", onFailure)
			}
			host, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer host.Close()
			progress := newSwapProgress(a.ui)
			o.Progress = progress
			plan, result, err := host.Swap(cmd.Context(), args, o)
			progress.close()
			if err != nil {
				return swapError(args, err)
			}
			if o.DryRun {
				return printPlan(a.ui, plan)
			}
			return printResult(a.ui, plan, result)
		},
	}
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "n", false, "print the plan, and do nothing")
	cmd.Flags().StringVar(&onFailure, "on-failure", "rollback", "what to do when a step fails: `ACTION` is rollback or stay")
	return cmd
}

func swapError(names []string, err error) error {
	var unknown *hostctl.UnknownInstanceError
	var refused *hostctl.RefusedError
	target := strings.Join(names, ", ")
	switch {
	case errors.As(err, &unknown):
		hints := []string{"vllmhost apply"}
		if len(unknown.Known) > 0 {
			hints = append(hints, "instances that have one: "+strings.Join(unknown.Known, ", "))
		}
		return fail(exitFailed, fmt.Errorf("cannot swap to %q: %v", target, err), hints...)
	case errors.As(err, &refused):
		var hints []string
		for _, p := range refused.Problems {
			hints = append(hints, p.Hints...)
		}
		return fail(exitFailed, fmt.Errorf("cannot swap to %q: %v; nothing was touched", target, err), hints...)
	}
	return hostError(err)
}
