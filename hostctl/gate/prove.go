package gate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"vllmhost/hostctl/ports"
	"vllmhost/hostctl/probe"
	"vllmhost/hostctl/proc"
	"vllmhost/unitgen"
)

// errNotListening says that nothing listens yet where the instance should.
var errNotListening = errors.New("nothing listens")

// Proof shows that an instance serves.
type Proof struct{ probe.Answer }

// prove checks that the listener belongs to one of the unit's processes, and that it answers with the right model and makes a token.
// Health is a matter of identity and work: an orphan of another instance answers 200 as well.
func prove(ctx context.Context, s unitgen.Section, members func() ([]int, error), apiKey string) (Proof, error) {
	if err := ownsSocket(s, members); err != nil {
		return Proof{}, err
	}
	target := probe.Target{Host: s.Host, Port: s.Port, UDS: s.UDS, TLS: s.TLS, APIKey: apiKey, Models: s.Served}
	answer, err := target.Ready(ctx)
	if err == nil {
		// Whoever came to listen meanwhile (SO_REUSEPORT) may have been the one who answered.
		err = ownsSocket(s, members)
	}
	return Proof{answer}, err
}

// ownsSocket checks that one of the unit's processes listens where the instance should, and nobody else does. It is
// called often while an engine loads, so it looks at those alone unless it has a stranger to name.
func ownsSocket(s unitgen.Section, members func() ([]int, error)) error {
	sockets, err := listening(s)
	if err != nil {
		return err
	}
	if len(sockets) == 0 {
		return errNotListening
	}
	pids, err := members()
	if err != nil {
		return err
	}
	for _, socket := range sockets {
		if len(proc.SocketOwnersAmong(pids, socket.Inode)[socket.Inode]) == 0 {
			return foreign(s, socket)
		}
	}
	return nil
}

// listening returns the sockets that listen where the instance should, whoever has them.
func listening(s unitgen.Section) ([]ports.Socket, error) {
	var sockets []ports.Socket
	var err error
	if s.UDS != "" {
		sockets, err = ports.OnPath(s.UDS)
	} else {
		sockets, err = ports.Listeners(s.Port)
	}
	return slices.DeleteFunc(sockets, func(socket ports.Socket) bool {
		return socket.State != ports.Listening || s.UDS == "" && !socket.Blocks(address(s.Host))
	}), err
}

// address is where the instance listens; a name instead of an address may mean any.
func address(host string) netip.Addr {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.IPv4Unspecified()
	}
	return addr
}

// strangerError says that a process of somebody else listens where the instance should.
type strangerError struct {
	where  string
	holder ports.Holder
}

func (e *strangerError) Error() string {
	return fmt.Sprintf("%s belongs to another process: %s", e.where, e.holder)
}

// foreign names who has a socket that should be the instance's own.
func foreign(s unitgen.Section, socket ports.Socket) error {
	holders, err := holdersOf(s)
	if err != nil {
		return err
	}
	for _, h := range holders {
		if h.Inode == socket.Inode {
			return &strangerError{s.Where(), h}
		}
	}
	return errNotListening // it went away while we looked
}

// holdersOf lists who listens, or has bound a socket, where the instance wants to listen.
func holdersOf(s unitgen.Section) ([]ports.Holder, error) { return holdersAmong(s, nil) }

// holdersAmong is holdersOf, with the processes that are likely to be among them.
func holdersAmong(s unitgen.Section, likely []int) ([]ports.Holder, error) {
	if s.UDS != "" {
		return ports.UnixHolders(s.UDS)
	}
	holders, err := ports.Holders(s.Port, likely...)
	return slices.DeleteFunc(holders, func(h ports.Holder) bool { return !h.Blocks(address(s.Host)) }), err
}

// membersOf lists the processes of a cgroup.
func membersOf(cgroup string) func() ([]int, error) {
	return func() ([]int, error) { return proc.Members(cgroup) }
}

// Prover proves from outside of the unit that a running instance serves.
type Prover struct{ Systemd Systemd }

// Prove returns in a few words how the instance answered.
func (p Prover) Prove(ctx context.Context, s unitgen.Section) (string, error) {
	status, err := p.Systemd.State(ctx, unitgen.UnitName(s.Instance))
	if err != nil {
		return "", err
	}
	if status.Active != "active" {
		return "", fmt.Errorf("%s is %s (%s)", status.Name, status.Active, status.Sub)
	}
	key, err := apiKey(s.EnvFile)
	if err != nil {
		return "", err
	}
	proof, err := prove(ctx, s, membersOf(status.ControlGroup), key)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("owns %s, answers as %q, a token after %.2fs", s.Where(), proof.Model, proof.FirstToken.Seconds()), nil
}

// apiKey reads VLLM_API_KEY from an EnvironmentFile= of the unit's.
func apiKey(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the API key: %v", err)
	}
	defer f.Close()
	key := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if ok && strings.TrimSpace(name) == "VLLM_API_KEY" {
			key = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return key, nil
}
