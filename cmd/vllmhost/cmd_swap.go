package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vllmhost/hostctl"
	"vllmhost/hostctl/gate"
	"vllmhost/hostctl/swap"
)

func newSwapCommand(a *app) *cobra.Command {
	var o hostctl.SwapOptions
	var onFailure string
	cmd := &cobra.Command{
		Use:   "swap NAME...",
		Short: "Move the host to other instances",
		Long: `Checks on paper that the named instances can start, while what serves goes on serving. Then stops what conflicts with them
(the same GPUs, or the same port), waits until GPUs and ports are free, starts them, proves that they serve, and makes
them what starts at boot. If a step fails, all is undone and what served before serves again. An instance that serves
already is left alone, or restarted if a new definition of it is pending.

The checks that --skip-check knows: ` + strings.Join(gate.Checks(), ", ") + `.`,
		Example: `  vllmhost swap kimi-int4
  vllmhost swap --dry-run kimi-int4
  vllmhost swap --skip-check model kimi-int4
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
			for _, id := range o.Skip {
				if !slices.Contains(gate.Checks(), id) {
					return usageError(cmd, "there is no check %q; there are: %s", id, strings.Join(gate.Checks(), ", "))
				}
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
	cmd.Flags().StringSliceVar(&o.Skip, "skip-check", nil, "start although the check `ID` finds something; may be repeated")
	cmd.Flags().BoolVar(&o.KeepEdits, "keep-edits", false, "start units that were edited by hand as they are")
	cmd.Flags().StringVar(&onFailure, "on-failure", "rollback", "what to do when a step fails: `ACTION` is rollback or stay")
	return cmd
}

func swapError(names []string, err error) error {
	var unknown *hostctl.UnknownInstanceError
	var refused *swap.RefusedError
	target := strings.Join(names, ", ")
	switch {
	case errors.As(err, &unknown):
		hints := []string{"vllmhost apply"}
		if len(unknown.Known) > 0 {
			hints = append(hints, "instances that have one: "+strings.Join(unknown.Known, ", "))
		}
		return fail(exitFailed, fmt.Errorf("cannot swap to %q: %v", target, err), hints...)
	case errors.As(err, &refused):
		return fail(exitFailed, fmt.Errorf("cannot swap to %q: %v; nothing was touched", target, err), refused.Hints()...)
	}
	return hostError(err)
}
