package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"vllmhost/hostctl"
	"vllmhost/hostctl/gate"
)

func newAwaitCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "await NAME",
		Short: "Wait until a started instance serves",
		Long: `Runs after each start of an instance, as root, from its unit (ExecStartPost=), so that "active" means that it serves: the
listening socket belongs to its own processes, it lists its model, and it made a token. It fails as soon as the engine
ends.`,
		Example:     "  ExecStartPost=+/usr/bin/vllmhost await kimi-int4",
		Annotations: exits(exitDone, exitFailed),
		GroupID:     groupUnits,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.hook(cmd.Context(), func(ctx context.Context, host *hostctl.Host, hook gate.Hook, env gate.Environment) error {
				await := gate.Await{Hook: hook, GPUs: host.GPUs()}
				if err := await.Run(ctx, args[0], env); err != nil {
					return fail(exitFailed, fmt.Errorf("cannot count %q as started: %v", args[0], err))
				}
				return nil
			})
		},
	}
}

// hook runs what a unit calls: with an environment of its own, and systemd to talk to.
func (a *app) hook(ctx context.Context, run func(context.Context, *hostctl.Host, gate.Hook, gate.Environment) error) error {
	env := gate.TakeEnvironment()
	host, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer host.Close()
	return run(ctx, host, gate.Hook{
		Systemd: host.Systemd(),
		Notify: func(state string) {
			// Outside of a unit there is nobody to tell.
			_, _ = daemon.SdNotify(false, state)
		},
		Log: slog.New(hookLog{a.ui.Err()}),
	}, env)
}
