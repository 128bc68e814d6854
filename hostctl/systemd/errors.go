package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/godbus/dbus/v5"
)

var (
	// ErrNotBooted says that this host, or container, does not run systemd as its first process.
	ErrNotBooted = errors.New("this host was not booted with systemd")

	// ErrUnreachable says that systemd, or the bus before it, does not answer.
	ErrUnreachable = errors.New("the bus does not answer")

	// ErrAccessDenied says that the caller may not do this: usually it is not root.
	ErrAccessDenied = errors.New("access denied")

	// ErrNoSuchUnit says that systemd knows no unit of that name and finds no file for it.
	ErrNoSuchUnit = errors.New("no such unit")

	errClosed = errors.New("the connection to systemd was closed")
)

// JobError says why a unit could not be started or stopped.
type JobError struct {
	Unit string
	Op   string // "start" or "stop"

	// Result is systemd's word for how the job ended: done, canceled, timeout, failed, dependency, skipped, ... Empty
	// where there was no job, or its end was not seen.
	Result string

	// Status is the unit as it was found afterwards; its Name is empty where it could not be read.
	Status UnitStatus

	// Err is the reason where it is not the job's result: what systemd answered, or how the context ended.
	Err error
}

func (e *JobError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cannot %s %q: ", e.Op, e.Unit)
	switch {
	case e.Err != nil && e.Result == "" && errors.Is(e.Err, context.DeadlineExceeded) && e.Status.Name != "":
		fmt.Fprintf(&b, "the unit was still %s when the time was up", e.Status.state())
		return b.String()
	case e.Err != nil:
		b.WriteString(e.Err.Error())
		return b.String()
	case e.Result == "":
		b.WriteString("the job ended unseen")
	case e.Result == "done" || e.Result == "skipped":
		fmt.Fprintf(&b, "the job is %s, but", e.Result)
	default:
		fmt.Fprintf(&b, "job %s", e.Result)
	}
	if e.Status.Name == "" {
		return b.String()
	}
	sep := ","
	if strings.HasSuffix(b.String(), "but") {
		sep = ""
	}
	fmt.Fprintf(&b, "%s the unit is %s", sep, e.Status.state())
	if why := e.Status.Failure(); why != "" && e.Op == "start" {
		b.WriteString(": " + why)
	}
	return b.String()
}

// Unwrap gives ErrNoSuchUnit, ErrAccessDenied, the context's error, and the like.
func (e *JobError) Unwrap() error { return e.Err }

// answer is an error that systemd answered with: its words, and what a caller may ask for with errors.Is.
type answer struct {
	text string
	kind error // may be nil
}

func (a *answer) Error() string { return a.text }
func (a *answer) Unwrap() error { return a.kind }

// translate turns what the bus answered into this package's errors. The names are those of systemd 252 and 257
// (src/libsystemd/sd-bus/bus-common-errors.h) and of the D-Bus specification.
func translate(err error) error {
	var e dbus.Error
	if !errors.As(err, &e) {
		return err
	}
	a := &answer{text: strings.TrimSuffix(e.Error(), ".")}
	switch e.Name {
	case busName + ".NoSuchUnit":
		a.kind = ErrNoSuchUnit
	case "org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.AuthFailed",
		"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired":
		a.kind = ErrAccessDenied
	}
	return a
}

// isAbsent reports whether an error name means that systemd has no place on the bus: at the moment, after a restart of
// the bus or of systemd.
func isAbsent(name string) bool {
	switch name {
	case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
		"org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Disconnected":
		return true
	}
	// Where the name has no owner the bus tries to start one, and systemd is not started that way.
	return strings.HasPrefix(name, "org.freedesktop.DBus.Error.Spawn.")
}

// unreachable wraps the reason why no connection could be made.
func unreachable(address string, err error) error {
	kind := ErrUnreachable
	if errors.Is(err, fs.ErrPermission) || errors.Is(translate(err), ErrAccessDenied) {
		kind = ErrAccessDenied
	}
	if address == "" {
		address = "the system bus"
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("cannot reach systemd at %q: %w: %w", address, kind, err)
	}
	return fmt.Errorf("cannot reach systemd at %q: %w: %v", address, kind, err)
}
