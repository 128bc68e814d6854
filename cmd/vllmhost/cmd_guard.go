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
same port or GPUs, a foreign process the port or the GPUs' memory, a swap is under way, or a drop-in contradicts the
unit. It waits for what passes by itself: device nodes, and memory that is just being freed. Where the unit uses the
host's /dev/shm, it removes what its own user left there. A refused unit is stopped, so that nothing starts it again by
itself; the journal and systemctl status say what to type.`,
		Example:     "  ExecStartPre=+/usr/bin/vllmhost guard kimi-int4",
		Annotations: exits(exitDone, exitFailed),
		GroupID:     groupUnits,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.hook(cmd.Context(), func(ctx context.Context, host *hostctl.Host, hook gate.Hook, env gate.Environment) error {
				guard := gate.Guard{Hook: hook, Claims: host.Claims(), GPUs: host.GPUs(), Clean: host.CleanBefore}
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
