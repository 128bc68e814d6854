package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"vllmhost/hostctl"
)

func newApplyCommand(a *app) *cobra.Command {
	var o hostctl.ApplyOptions
	var diff, detailed bool
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Write the units that the profile asks for",
		Long: `Writes one systemd unit for each instance of the profile. It starts and stops nothing. The new definition of an instance
that runs or starts at boot only becomes pending: "vllmhost swap" installs it, and can take it back. Units that were
edited by hand are kept. Any error puts every file back; a second apply changes nothing.`,
		Example: `  vllmhost apply
  vllmhost apply --diff
  vllmhost apply --force glm5
  vllmhost apply --wait-lock 30m
  vllmhost apply --json --detailed-exitcode`,
		Annotations: exits(exitDone, exitFailed, exitChanged, exitLocked, exitProfile),
		GroupID:     groupProfile,
		RunE: func(cmd *cobra.Command, args []string) error {
			profile, err := a.load()
			if err != nil {
				return err
			}
			for _, name := range o.Force {
				if profile.Instances[name] == nil {
					return fail(exitUsage, fmt.Errorf("cannot force %q: there is no such instance in the profile", name))
				}
			}
			host, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer host.Close()
			o.DryRun = o.DryRun || diff
			began := time.Now()
			done, err := host.Apply(cmd.Context(), profile, o)
			if err != nil {
				return applyError(a, done, err)
			}
			if err := printApplied(a.ui, done, o.DryRun, diff, time.Since(began)); err != nil {
				return err
			}
			if detailed && done.Changed() {
				return end(exitChanged)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "n", false, "say what would be done, and do nothing")
	cmd.Flags().BoolVar(&diff, "diff", false, "show what would change in each unit, and do nothing")
	cmd.Flags().StringSliceVar(&o.Force, "force", nil, "overwrite the unit of instance `NAME`, whoever wrote or edited it")
	cmd.Flags().BoolVar(&detailed, "detailed-exitcode", false, "exit with 2 when something was changed")
	waitLockFlag(cmd, &o.WaitLock)
	return cmd
}

func applyError(a *app, done hostctl.Applied, err error) error {
	var foreign *hostctl.ForeignUnitError
	if errors.As(err, &foreign) {
		return fail(exitFailed, fmt.Errorf("%v; nothing was changed", err),
			"systemctl cat "+foreign.Unit,
			"to overwrite it: vllmhost apply --force "+foreign.Instance)
	}
	return hostError(err)
}
