// Package systemd is a thin client of systemd's D-Bus API, org.freedesktop.systemd1(5): it starts and stops units and
// knows how that ended, reads their state, and reloads systemd when a unit needs it.
//
// It owns the connection, which it renews when the bus goes away, and the waiting for jobs. It knows nothing of unit
// files, of profiles, or of what a unit is for.
//
// Signals are taken as a reason to look, never as the truth: they get lost during a reload (systemd issue 5328), end
// with the bus, and any local user can send one that looks like systemd's. Every wait is therefore a signal or a poll,
// up to the deadline of the context, and ends by reading the unit again.
//
// The connection type of go-systemd is not used: it connects twice, polls for changes, lets one slow reader of a job's
// result hold up all others, and ends with the bus.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/godbus/dbus/v5"
)

const (
	busName      = "org.freedesktop.systemd1"
	managerPath  = dbus.ObjectPath("/org/freedesktop/systemd1")
	managerIface = busName + ".Manager"
	unitIface    = busName + ".Unit"
	serviceIface = busName + ".Service"
	jobIface     = busName + ".Job"
	propsIface   = "org.freedesktop.DBus.Properties"
)

// Options say how to reach systemd.
type Options struct {
	// Address is a D-Bus address such as "unix:path=/run/dbus/system_bus_socket". Empty means the system bus
	// ($DBUS_SYSTEM_BUS_ADDRESS, or its usual socket) and, for root where that does not answer, systemd's own socket
	// /run/systemd/private, as systemctl uses it.
	Address string

	// Logger is told of connections lost and found again. Nil means silence.
	Logger *slog.Logger
}

// Client talks to the systemd of this host. It is safe for concurrent use, and outlives restarts of the bus and of
// systemd itself: a call or a wait that meets one connects again and goes on.
type Client struct {
	opts Options
	log  *slog.Logger

	life context.Context // ends at Close
	end  context.CancelFunc

	dialing chan struct{} // a lock that a context can give up on: capacity 1, held while connecting

	mu    sync.Mutex
	link  *link // the connection in use; nil before the first and after the loss of one
	jobs  map[*jobWatch]struct{}
	units map[dbus.ObjectPath]map[*unitWatch]struct{}
}

// Open connects to systemd. The context bounds the connecting only, not the life of the client. The error is
// ErrNotBooted, ErrUnreachable or ErrAccessDenied where one of them is the reason.
func Open(ctx context.Context, o Options) (*Client, error) {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	life, end := context.WithCancel(context.Background())
	c := &Client{
		opts: o, log: log, life: life, end: end,
		dialing: make(chan struct{}, 1),
		jobs:    make(map[*jobWatch]struct{}),
		units:   make(map[dbus.ObjectPath]map[*unitWatch]struct{}),
	}
	if o.Address == "" {
		if err := bootedWithSystemd(); err != nil {
			end()
			return nil, err
		}
	}
	l, err := c.dial(ctx)
	if err != nil {
		end()
		return nil, err
	}
	c.use(ctx, l)
	return c, nil
}

// Close ends the connection. Calls and waits in progress end with an error, watches by closing their channel.
func (c *Client) Close() {
	c.end()
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l != nil {
		l.conn.Close()
	}
}

// call calls a method and returns what it answered. A connection that breaks on the way is renewed and the call made
// again: every method this package calls can be repeated without harm.
func (c *Client) call(ctx context.Context, path dbus.ObjectPath, method string, args ...any) ([]any, error) {
	var last error
	for range 3 {
		l, err := c.connected(ctx)
		if err != nil {
			return nil, err
		}
		body, err := l.call(ctx, path, method, args...)
		if err == nil || !isLost(err) {
			return body, translate(err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		l.conn.Close()
		last = err
	}
	return nil, unreachable(c.opts.Address, last)
}

// call calls a method on this connection. A broken connection gives an error that isLost knows.
func (l *link) call(ctx context.Context, path dbus.ObjectPath, method string, args ...any) ([]any, error) {
	reply := l.conn.Object(busName, path).CallWithContext(ctx, method, 0, args...)
	return reply.Body, reply.Err
}

// property reads one property of an object.
func (c *Client) property(ctx context.Context, path dbus.ObjectPath, iface, name string) (any, error) {
	body, err := c.call(ctx, path, propsIface+".Get", iface, name)
	if err != nil {
		return nil, err
	}
	var v dbus.Variant
	if err := dbus.Store(body, &v); err != nil {
		return nil, fmt.Errorf("cannot understand systemd's property %q: %v", name, err)
	}
	return v.Value(), nil
}

// isLost reports whether a call failed because the connection, or systemd's place on the bus, is gone: not because
// systemd answered with an error, and not because the caller gave up.
func isLost(err error) bool {
	var answer dbus.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &answer):
		return isAbsent(answer.Name)
	}
	return true
}
