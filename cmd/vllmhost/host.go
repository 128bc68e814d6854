package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"vllmhost/conf"
	"vllmhost/hostctl"
	"vllmhost/hostctl/systemd"
)

// open connects a command to the host.
func (a *app) open(ctx context.Context) (*hostctl.Host, error) {
	host, err := hostctl.Open(ctx, hostctl.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, hostError(err)
	}
	return host, nil
}

// load reads the profile, shows its problems, and ends the command when it has errors.
func (a *app) load() (*conf.Profile, error) {
	profile, problems := conf.Load(a.profile)
	if len(problems) == 0 {
		return profile, nil
	}
	for _, d := range problems {
		a.ui.NoteText(d.String())
	}
	if problems.HasErrors() {
		return nil, fail(exitProfile, fmt.Errorf("cannot use the profile %q: %s; nothing was changed", a.profile, problems.Summary()))
	}
	return profile, nil
}

// hostError gives an error of hostctl its exit status and its hints.
func hostError(err error) error {
	var locked *hostctl.LockedError
	var notRoot *hostctl.NotRootError
	switch {
	case errors.As(err, &locked):
		return fail(exitLocked, err, "vllmhost status")
	case errors.As(err, &notRoot):
		return fail(exitFailed, err, "sudo "+commandLine())
	case errors.Is(err, systemd.ErrNotBooted):
		return fail(exitFailed, err, "vllmhost works on a host, or in a container, that was booted with systemd")
	case errors.Is(err, systemd.ErrUnreachable):
		return fail(exitFailed, err, "systemctl status dbus.socket dbus.service")
	case errors.Is(err, systemd.ErrAccessDenied):
		return fail(exitFailed, err, "sudo "+commandLine())
	}
	return fail(exitFailed, err)
}

func commandLine() string {
	line := "vllmhost"
	for _, arg := range os.Args[1:] {
		line += " " + arg
	}
	return line
}
