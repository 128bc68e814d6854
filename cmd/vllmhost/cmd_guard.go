package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"vllmhost/hostctl"
	"vllmhost/hostctl/gate"
)

func newGuardCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "guard NAME",
		Short: "Let an instance start, or refuse",
		Long: `Runs before each start of an instance, as root, from its unit (ExecStartPre=). It refuses when another instance holds the
same port or GPUs, or a foreign process the port. A refused unit is stopped, so that nothing starts it again by itself;
the journal and systemctl status say what to type.`,
		Example:     "  ExecStartPre=+/usr/bin/vllmhost guard kimi-int4",
		Annotations: exits(exitDone, exitFailed),
		GroupID:     groupUnits,
		RunE: func(cmd *cobra.Command, args []string) error {
			env := gate.TakeEnvironment()
			host, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer host.Close()
			guard := gate.Guard{Hook: newHook(a, host), Claims: gate.Claims{Dir: hostctl.RunDir}}
			err = guard.Run(cmd.Context(), args[0], env)
			var refusal *gate.Refusal
			if errors.As(err, &refusal) && refusal.Hint != "" {
				return fail(exitFailed, fmt.Errorf("cannot start %q: %v", args[0], err), refusal.Hint)
			}
			if err != nil {
				return fail(exitFailed, fmt.Errorf("cannot start %q: %v", args[0], err))
			}
			return nil
		},
	}
}

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
			env := gate.TakeEnvironment()
			host, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer host.Close()
			await := gate.Await{Hook: newHook(a, host)}
			if err := await.Run(cmd.Context(), args[0], env); err != nil {
				return fail(exitFailed, fmt.Errorf("cannot count %q as started: %v", args[0], err))
			}
			return nil
		},
	}
}

func newHook(a *app, host *hostctl.Host) gate.Hook {
	return gate.Hook{
		Systemd: host.Systemd(),
		Notify: func(state string) {
			// Outside of a unit there is nobody to tell.
			_, _ = daemon.SdNotify(false, state)
		},
		Log: slog.New(slog.NewTextHandler(a.ui.Err(), nil)),
	}
}
