package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
)

//go:embed demo.txt
var demoScript string

func newDemoCommand() *cobra.Command {
	var flags hostFlags
	cmd := &cobra.Command{
		Use:   "demo [FILE]",
		Short: "Play an administrator's evening on a new host",
		Long: `Shows the commands a user would type and what they answer, on a host booted for it. Each step is
checked against the script, out of sight; the first that ends unexpectedly ends the demo with status 1.
FILE replaces the built-in script.`,
		Args: cobra.MaximumNArgs(1),
	}
	flags.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text := demoScript
		if len(args) > 0 {
			file, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			text = string(file)
		}
		acts, err := parseScript(text)
		if err != nil {
			return err
		}
		start := time.Now()
		lab, h, err := flags.boot(cmd)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%v is up after %.1f s.\n", h, time.Since(start).Seconds())
		p := player{host: h, out: cmd.OutOrStdout(), tty: isTerminal(cmd.OutOrStdout())}
		if err := p.play(cmd.Context(), acts); err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 10*time.Second)
			defer cancel()
			fmt.Fprintf(cmd.ErrOrStderr(), "\nthe journal of %v:\n%s\n", h, h.Journal(ctx, 60))
			return joinClose(err, lab)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "\nDemo done in %.0f s.\n", time.Since(start).Seconds())
		return lab.Close()
	}
	return cmd
}
