package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"vllmhost/testhost"
)

// A player shows a script on a host.
type player struct {
	host *testhost.Host
	out  io.Writer
	tty  bool
}

// actLimit bounds a command that hangs.
const actLimit = 3 * time.Minute

func (p player) play(ctx context.Context, acts []act) error {
	for _, a := range acts {
		ctx, cancel := context.WithTimeout(ctx, actLimit)
		err := p.perform(ctx, a)
		cancel()
		if err != nil {
			return fmt.Errorf("demo line %d: %w", a.line, err)
		}
	}
	return nil
}

func (p player) perform(ctx context.Context, a act) error {
	switch a.kind {
	case actBlank:
		fmt.Fprintln(p.out)
	case actComment:
		fmt.Fprintln(p.out, p.style("2", "# "+a.text))
	case actCommand:
		return p.command(ctx, a)
	case actReboot:
		return p.restart(ctx, "$ systemctl reboot", p.host.Reboot)
	case actPowerCut:
		return p.restart(ctx, "(the power fails)", p.host.PowerCut)
	}
	return nil
}

// command shows a command and what it says, as it says it.
func (p player) command(ctx context.Context, a act) error {
	fmt.Fprintln(p.out, p.style("1", "$ "+a.text))
	argv := []string{"bash", "-c", "cd; " + a.text}
	if p.tty {
		// Programs speak differently to a terminal; the viewer has one.
		argv = []string{"script", "--quiet", "--return", "--command", "cd; " + a.text, "/dev/null"}
	}
	var said bytes.Buffer
	both := io.MultiWriter(p.out, &said)
	code, err := p.host.RunIO(ctx, testhost.Streams{Out: both, Err: both, Env: environment()}, argv...)
	if err != nil {
		return err
	}
	if code != a.exit {
		return fmt.Errorf("%q ended with status %d, want %d", a.text, code, a.exit)
	}
	for _, re := range a.want {
		if !re.Match(said.Bytes()) {
			return fmt.Errorf("the output of %q does not match %q", a.text, re)
		}
	}
	return nil
}

func (p player) restart(ctx context.Context, shown string, restart func(context.Context) error) error {
	fmt.Fprintln(p.out, p.style("1", shown))
	start := time.Now()
	if err := restart(ctx); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "(multi-user.target reached after %.1f s)\n", time.Since(start).Seconds())
	return nil
}

// style wraps text in an SGR sequence where the viewer has a terminal.
func (p player) style(sgr, text string) string {
	if !p.tty {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}
