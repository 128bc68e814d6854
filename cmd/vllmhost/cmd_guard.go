package main

import (
	"context"
	"errors"
	"fmt"

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
			return a.hook(cmd.Context(), func(ctx context.Context, hook gate.Hook, env gate.Environment) error {
				guard := gate.Guard{Hook: hook, Claims: gate.Claims{Dir: hostctl.RunDir}}
				err := guard.Run(ctx, args[0], env)
				if err == nil {
					return nil
				}
				var hints []string
				var refusal *gate.Refusal
				if errors.As(err, &refusal) && refusal.Hint != "" {
					hints = append(hints, refusal.Hint)
				}
				return fail(exitFailed, fmt.Errorf("cannot start %q: %v", args[0], err), hints...)
			})
		},
	}
}
