// Command vllmhost runs vLLM on this host: one profile becomes systemd units, and a swap from one model to another ends
// in a proven state. This package reads the command line, calls hostctl and says what came of it; it decides nothing
// about the host itself.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"vllmhost/cmd/vllmhost/term"
)

func main() {
	// Ctrl-C, systemctl stop and a lost terminal cancel the command, which then leaves things in order. nohup has the
	// last one ignored, and that stays so.
	stops := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stops = append(stops, syscall.SIGHUP)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), stops...)
	defer cancel()

	// A reader that has seen enough (vllmhost apply | head -1) must not end the program halfway through its work. Caught
	// rather than ignored, because an ignored signal would stay ignored in the programs we start.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	os.Exit(run(ctx, os.Args[1:], term.New(os.Stdout, os.Stderr, os.Getenv)))
}
