package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"vllmhost/testhost"
)

func newShellCommand() *cobra.Command {
	var flags hostFlags
	cmd := &cobra.Command{
		Use:   "shell",
		Short: "Give a prompt inside a host with the package, a sample profile and models",
		Long: `Boots a host and runs a root shell in it; the end of the shell is the end of the host.
"reboot" works: the shell comes back when the host does.`,
		Example: `  testhost shell --release bookworm --gpus 8
  echo 'vllmhost apply && vllmhost status' | testhost shell`,
		Args: cobra.NoArgs,
	}
	flags.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		start := time.Now()
		lab, h, err := flags.boot(cmd)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%v is up after %.1f s. Try: vllmhost check; vllmhost apply; vllmhost swap minimax\n",
			h, time.Since(start).Seconds())
		code, err := shell(cmd, h)
		if err != nil {
			return joinClose(err, lab)
		}
		if err := lab.Close(); err != nil {
			return err
		}
		if code != 0 {
			return exitStatus(code)
		}
		return nil
	}
	return cmd
}

// shell runs shells in the host, one for each of its boots.
func shell(cmd *cobra.Command, h *testhost.Host) (int, error) {
	streams := testhost.Streams{
		In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
		Foreground: true, Env: environment(),
	}
	argv := []string{"bash", "-lc", "cd; exec bash"}
	if isTerminal(cmd.InOrStdin()) {
		// A terminal of the host's own, so that job control and less work.
		argv = []string{"script", "--quiet", "--return", "--command", "cd; exec bash -l", "/dev/null"}
	}
	for {
		code, err := h.RunIO(cmd.Context(), streams, argv...)
		if err != nil {
			return 0, err
		}
		if !awaitReboot(h) {
			return code, nil
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "rebooting")
		if err := h.Resume(cmd.Context()); err != nil {
			return 0, err
		}
	}
}

// awaitReboot reports whether the shell ended because the host reboots. The
// shell may be gone a moment before the host is.
func awaitReboot(h *testhost.Host) bool {
	select {
	case <-h.Ended():
		return h.Rebooting()
	case <-time.After(300 * time.Millisecond):
		return false
	}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
