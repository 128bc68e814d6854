package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	// privateSocket is systemd's own, without a bus between. Only root may connect.
	privateSocket = "unix:path=/run/systemd/private"

	// busPatience bounds one attempt to reach the system bus. Its socket exists before and after the bus does:
	// systemd holds it, and connecting then means waiting for the bus to be started.
	busPatience = 5 * time.Second

	// greetingInterval is how often the first call on systemd's own socket is made until it is answered.
	greetingInterval = 20 * time.Millisecond

	// reconnectPatience bounds the attempts to connect again for one call. A restart of the bus takes well under a
	// second, and systemd about as long to come back to it.
	reconnectPatience = 10 * time.Second
)

// link is one connection.
type link struct {
	conn   *dbus.Conn
	direct bool // systemd's private socket: there is no bus, every signal arrives
}

// bootedWithSystemd is sd_booted(3).
func bootedWithSystemd() error {
	if os.Getenv("DBUS_SYSTEM_BUS_ADDRESS") != "" {
		return nil
	}
	if _, err := os.Lstat("/run/systemd/system"); err != nil {
		return fmt.Errorf("cannot reach systemd: %w", ErrNotBooted)
	}
	return nil
}

// connected returns the connection, connecting again if it was lost.
func (c *Client) connected(ctx context.Context) (*link, error) {
	if l := c.current(); l != nil {
		return l, nil
	}
	select {
	case c.dialing <- struct{}{}:
		defer func() { <-c.dialing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l := c.current(); l != nil {
		return l, nil // somebody else connected meanwhile
	}
	ctx, cancel := context.WithTimeout(ctx, reconnectPatience)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if c.life.Err() != nil {
			return nil, errClosed
		}
		l, err := c.dial(ctx)
		if err == nil {
			c.log.Info("connected to systemd again")
			c.use(ctx, l)
			return l, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// current returns the connection if there is one that lives.
func (c *Client) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil || c.link == nil || !c.link.conn.Connected() {
		return nil
	}
	return c.link
}

// dial makes one connection that has subscribed to systemd's signals.
func (c *Client) dial(ctx context.Context) (*link, error) {
	if c.opts.Address != "" {
		return c.dialTo(ctx, c.opts.Address, false)
	}
	bus := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS")
	if bus == "" {
		bus = "unix:path=/run/dbus/system_bus_socket"
	}
	busCtx, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	l, err := c.dialTo(busCtx, bus, false)
	if err == nil || os.Geteuid() != 0 || ctx.Err() != nil {
		return l, err
	}
	l, directErr := c.dialTo(ctx, privateSocket, true)
	if directErr != nil {
		c.log.Debug("systemd's own socket does not answer either", "cause", directErr)
		return nil, err // the bus is what the administrator knows
	}
	c.log.Debug("the system bus does not answer, using systemd's own socket", "cause", err)
	return l, nil
}

// dialTo connects, bounded by the context. godbus knows no deadline for connecting: an attempt that does not come back
// is left behind and cleans up after itself.
func (c *Client) dialTo(ctx context.Context, address string, direct bool) (*link, error) {
	type result struct {
		l   *link
		err error
	}
	connCtx, giveUp := context.WithCancel(c.life)
	done := make(chan result, 1)
	go func() {
		l, err := c.handshake(connCtx, address, direct)
		done <- result{l, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			giveUp()
			return nil, unreachable(address, r.err)
		}
		context.AfterFunc(r.l.conn.Context(), giveUp)
		return r.l, nil
	case <-ctx.Done():
		giveUp()
		return nil, unreachable(address, ctx.Err())
	}
}

// handshake connects, authenticates and subscribes. The connection lives until the context ends.
func (c *Client) handshake(ctx context.Context, address string, direct bool) (_ *link, err error) {
	conn, err := dbus.Dial(address, dbus.WithContext(ctx), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	// The number, not the name: a look-up of the name could ask NSS, and through it the bus.
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return nil, err
	}
	l := &link{conn: conn, direct: direct}
	signals := make(chan *dbus.Signal, 64)
	conn.Signal(signals)
	go c.dispatch(l, signals)

	if !direct {
		if err := conn.Hello(); err != nil {
			return nil, err
		}
		if err := l.match(ctx, managerPath, managerIface, "JobRemoved"); err != nil {
			return nil, err
		}
		if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(daemon), dbus.WithMatchInterface(daemon),
			dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, busName)); err != nil {
			return nil, err
		}
	}
	if err := l.subscribe(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// subscribe asks systemd for its signals: without this it tells a connection of nothing but its own jobs.
//
// On its own socket systemd can overlook what comes right behind the authentication: it reads both at once, and looks
// at the rest only when more arrives. So the first call is repeated until it is answered.
func (l *link) subscribe(ctx context.Context) error {
	for {
		try, cancel := ctx, context.CancelFunc(func() {})
		if l.direct {
			try, cancel = context.WithTimeout(ctx, greetingInterval)
		}
		_, err := l.call(try, managerPath, managerIface+".Subscribe")
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		if answer := (dbus.Error{}); errors.As(err, &answer) && answer.Name == busName+".AlreadySubscribed" {
			return nil
		}
		return err
	}
}

// use makes a connection the current one, and has everybody who waits look again: what happened while there was no
// connection was not signalled.
func (c *Client) use(ctx context.Context, l *link) {
	c.mu.Lock()
	c.link = l
	var paths []dbus.ObjectPath // one entry a watch
	for path, watches := range c.units {
		for range watches {
			paths = append(paths, path)
		}
	}
	c.mu.Unlock()
	for _, path := range paths {
		l.watchUnit(ctx, path)
	}
	c.wakeAll()
}

// watchUnit asks the bus for the changes of a unit. A failure costs only speed: whoever watches polls too.
func (l *link) watchUnit(ctx context.Context, path dbus.ObjectPath) {
	if !l.direct {
		_ = l.match(ctx, path, propsIface, "PropertiesChanged")
	}
}

// forgetUnit undoes one watchUnit; the bus counts them.
func (l *link) forgetUnit(ctx context.Context, path dbus.ObjectPath) {
	if !l.direct {
		_ = l.conn.RemoveMatchSignalContext(ctx, rule(path, propsIface, "PropertiesChanged")...)
	}
}

func (l *link) match(ctx context.Context, path dbus.ObjectPath, iface, member string) error {
	return l.conn.AddMatchSignalContext(ctx, rule(path, iface, member)...)
}

func rule(path dbus.ObjectPath, iface, member string) []dbus.MatchOption {
	return []dbus.MatchOption{
		dbus.WithMatchSender(busName), dbus.WithMatchObjectPath(path),
		dbus.WithMatchInterface(iface), dbus.WithMatchMember(member),
	}
}

// daemon is the name of the bus itself. Nobody else can send in that name.
const daemon = "org.freedesktop.DBus"

// dispatch hands on the signals of one connection until it ends, and never waits for anybody.
func (c *Client) dispatch(l *link, signals <-chan *dbus.Signal) {
	for s := range signals {
		switch s.Name {
		case daemon + ".NameOwnerChanged":
			if s.Sender == daemon {
				go c.renew(l)
			}
		case managerIface + ".JobRemoved":
			var id uint32
			var job dbus.ObjectPath
			var unit, result string
			if dbus.Store(s.Body, &id, &job, &unit, &result) == nil {
				c.jobRemoved(job, removal{result: result, sender: s.Sender})
			}
		case propsIface + ".PropertiesChanged":
			c.unitChanged(s.Path)
		}
	}
	c.wakeAll() // they find the connection gone, and renew it
}

// renew subscribes again after systemd has left the bus and come back, as it does when it executes itself again: the
// new one knows of no subscription. What happened in between was not signalled.
func (c *Client) renew(l *link) {
	ctx, cancel := context.WithTimeout(c.life, reconnectPatience)
	defer cancel()
	if err := l.subscribe(ctx); err != nil {
		c.log.Debug("cannot subscribe to systemd again", "cause", err) // it has just left; its coming is told, too
	}
	c.wakeAll()
}

// wakeAll has every wait and watch look again.
func (c *Client) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.jobs {
		w.wake()
	}
	for _, watches := range c.units {
		for w := range watches {
			w.wake()
		}
	}
}
