package systemd

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/godbus/dbus/v5"
)

// watchInterval is how often a watch looks by itself, beside the signals that should make it look.
const watchInterval = 2 * time.Second

// Watch follows a unit: the channel gives its present state first and then its newest state after each change. Of the
// state it gives Name, Load, Active, Sub, Job, StatusText, InvocationID and ControlGroup; a unit that is not loaded is inactive. A
// receiver that is slow misses what lies between, never the newest. The channel is closed when the context ends, or the
// client is closed. The unit need not exist yet.
func (c *Client) Watch(ctx context.Context, name string) (<-chan UnitStatus, error) {
	path, err := unitPath(name)
	if err != nil {
		return nil, err
	}
	w := c.addWatch(ctx, path)
	first, err := c.state(ctx, name)
	if err != nil {
		c.removeWatch(path, w)
		return nil, fmt.Errorf("cannot watch %q: %w", name, err)
	}
	states := make(chan UnitStatus, 1)
	states <- first
	go func() {
		defer close(states)
		defer c.removeWatch(path, w)
		c.follow(ctx, w, name, first, states)
	}()
	return states, nil
}

// follow reads the unit whenever there may be news, until the context ends.
func (c *Client) follow(ctx context.Context, w *unitWatch, name string, last UnitStatus, states chan UnitStatus) {
	poll := time.NewTicker(watchInterval)
	defer poll.Stop()
	for {
		select {
		case <-w.woken:
		case <-poll.C:
		case <-ctx.Done():
			return
		case <-c.life.Done():
			return
		}
		s, err := c.state(ctx, name)
		if err != nil {
			if ctx.Err() == nil {
				c.log.Debug("cannot read a unit that is watched", "unit", name, "cause", err)
			}
			continue
		}
		if reflect.DeepEqual(s, last) {
			continue
		}
		last = s
		select {
		case <-states: // nobody took the older one
		default:
		}
		states <- s // room for it: this is the only sender
	}
}

// unitWatch is one watch of one unit.
type unitWatch struct {
	woken chan struct{} // capacity 1: look again
}

func (w *unitWatch) wake() { wake(w.woken) }

func (c *Client) addWatch(ctx context.Context, path dbus.ObjectPath) *unitWatch {
	w := &unitWatch{woken: make(chan struct{}, 1)}
	c.mu.Lock()
	if c.units[path] == nil {
		c.units[path] = make(map[*unitWatch]struct{})
	}
	c.units[path][w] = struct{}{}
	c.mu.Unlock()
	if l := c.current(); l != nil { // else: a new connection asks for all that are watched
		l.watchUnit(ctx, path)
	}
	return w
}

func (c *Client) removeWatch(path dbus.ObjectPath, w *unitWatch) {
	c.mu.Lock()
	delete(c.units[path], w)
	if len(c.units[path]) == 0 {
		delete(c.units, path)
	}
	c.mu.Unlock()
	if l := c.current(); l != nil {
		ctx, cancel := context.WithTimeout(c.life, lastLook)
		defer cancel()
		l.forgetUnit(ctx, path)
	}
}

// unitChanged has the watches of a unit look again.
func (c *Client) unitChanged(path dbus.ObjectPath) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.units[path] {
		w.wake()
	}
}
