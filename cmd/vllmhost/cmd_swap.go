package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vllmhost/hostctl/gate"
	"vllmhost/hostctl/swap"
)

func newSwapCommand(a *app) *cobra.Command {
	var req swap.Request
	var onFailure string
	var dryRun, attach, cancel bool
	cmd := &cobra.Command{
		Use:   "swap [NAME...]",
		Short: "Move the host to other instances",
		Long: `Checks on paper that the named instances can start, while what serves goes on serving. Then stops what conflicts with them
(the same GPUs, or the same port), waits until GPUs and ports are free, starts them, proves that they serve, and makes
them what starts at boot. If a step fails, all is undone and what served before serves again. An instance that serves
already is left alone, or restarted if a new definition of it is pending.

The swap runs in a unit of its own, vllmhost-operation@ID.service, and goes on without this terminal: Ctrl-C only stops
watching. If it is killed, or the host goes down, it goes on by itself and ends with one side serving.

The checks that --skip-check knows: ` + strings.Join(gate.Checks(), ", ") + `.`,
		Example: `  vllmhost swap kimi-int4
  vllmhost swap --dry-run kimi-int4
  vllmhost swap --attach
  vllmhost swap --cancel
  vllmhost swap --skip-check model kimi-int4
  vllmhost swap --json minimax embed`,
		Annotations: exits(exitDone, exitFailed, exitRolledBack, exitRollbackFailed, exitLocked, exitDetached),
		GroupID:     groupServing,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch onFailure {
			case "rollback", "stay":
				req.Stay = onFailure == "stay"
			default:
				return usageError(cmd, "--on-failure is rollback or stay, not %q", onFailure)
			}
			for _, id := range req.Skip {
				if !slices.Contains(gate.Checks(), id) {
					return usageError(cmd, "there is no check %q; there are: %s", id, strings.Join(gate.Checks(), ", "))
				}
			}
			switch {
			case (attach || cancel) && (len(args) > 0 || dryRun || attach && cancel):
				return usageError(cmd, "--attach and --cancel stand alone: they are about the swap that goes on")
			case !attach && !cancel && len(args) == 0:
				return usageError(cmd, "%s needs an argument: NAME", cmd.CommandPath())
			}
			req.Names = args
			host, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer host.Close()
			switch {
			case dryRun:
				return a.planned(cmd.Context(), host, req)
			case attach, cancel:
				return a.attach(cmd.Context(), host, cancel)
			}
			return a.operate(cmd.Context(), host, req)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&dryRun, "dry-run", "n", false, "print the plan, and do nothing")
	flags.BoolVar(&attach, "attach", false, "watch the swap that goes on")
	flags.BoolVar(&cancel, "cancel", false, "make the swap that goes on go back, and watch that")
	flags.StringSliceVar(&req.Skip, "skip-check", nil, "start although the check `ID` finds something; may be repeated")
	flags.BoolVar(&req.KeepEdits, "keep-edits", false, "start units that were edited by hand as they are")
	flags.StringVar(&onFailure, "on-failure", "rollback", "what to do when a step fails: `ACTION` is rollback or stay")
	waitLockFlag(cmd, &req.WaitLock)
	return cmd
}

func waitLockFlag(cmd *cobra.Command, wait *time.Duration) {
	cmd.Flags().DurationVar(wait, "wait-lock", 0, "wait so long, such as 10m, for another operation to end")
}

func newRollbackCommand(a *app) *cobra.Command {
	var req swap.Request
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Go back to what served before the last swap",
		Long: `Swaps to the instances that served before the last swap that succeeded, with their definitions of then. It is a swap like
any other: checked on paper first, proven at the end, and undone if it fails. The next rollback goes back from it.`,
		Example: `  vllmhost rollback
  vllmhost rollback --dry-run`,
		Annotations: exits(exitDone, exitFailed, exitRolledBack, exitRollbackFailed, exitLocked, exitDetached),
		GroupID:     groupServing,
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer host.Close()
			last, err := host.LastSwap()
			var refused *swap.RefusedError
			if errors.As(err, &refused) {
				return fail(exitFailed, refusedError("cannot roll back", refused), refused.Hints()...)
			}
			if err != nil {
				return hostError(err)
			}
			req.Back = last.ID
			if dryRun {
				return a.planned(cmd.Context(), host, req)
			}
			return a.operate(cmd.Context(), host, req)
		},
	}
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "print the plan, and do nothing")
	waitLockFlag(cmd, &req.WaitLock)
	return cmd
}
