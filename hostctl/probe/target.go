package probe

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// Target is an engine's API as seen from this host. Every call is bounded by its context, which should have a deadline:
// one of a few seconds for Health and Listed, of minutes for a first token, which may wait for kernels to be compiled.
type Target struct {
	Host   string   // what the engine binds: an address, a name, or "" and the unspecified addresses for loopback
	Port   int      // 1 to 65535; unused with UDS
	UDS    string   // path of a unix socket; then Host and Port do not count
	TLS    bool     // the engine speaks TLS on Host and Port
	APIKey string   `json:"-"` // sent as a bearer token to this target and nowhere else; "" for none
	Models []string // the names the engine should serve under, any of them; none accepts what it lists
}

// String is the address that is connected to: "127.0.0.1:8000", or the path of the unix socket. It is also what the fmt
// verbs print of a Target, so that the key does not end up in a log by accident.
func (t Target) String() string {
	_, address := t.address()
	return address
}

// GoString keeps the key out of %#v too.
func (t Target) GoString() string { return "probe.Target(" + t.String() + ")" }

// address returns where to connect, in the terms of [net.Dial]. An engine bound to an unspecified address is asked on
// loopback: "0.0.0.0" is no address to connect to.
func (t Target) address() (network, address string) {
	if t.UDS != "" {
		return "unix", t.UDS
	}
	host := strings.TrimSuffix(strings.TrimPrefix(t.Host, "["), "]")
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.Is6() {
			host = "::1"
		}
	}
	return "tcp", net.JoinHostPort(host, strconv.Itoa(t.Port))
}

// session is one connection to a target, kept for as long as several questions take. The client ends it: a server that
// closes first is left with its port in TIME_WAIT.
type session struct {
	target Target
	client http.Client
}

// open prepares a session; nothing is connected yet.
func (t Target) open() *session {
	network, address := t.address()
	return &session{target: t, client: http.Client{
		Transport: &http.Transport{
			Proxy: nil, // whatever the environment says: the question is what this host's engine answers
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address)
			},
			// The certificate is for the name that clients use, not for loopback, and to verify it proves nothing here:
			// who answers is proven by the owner of the listening socket.
			TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
			MaxConnsPerHost:        1,
			DisableCompression:     true, // no gzip bombs
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (s *session) close() { s.client.CloseIdleConnections() }

// url returns the URL of a path on the target.
func (s *session) url(path string) string {
	network, address := s.target.address()
	switch {
	case network == "unix":
		return "http://localhost" + path
	case s.target.TLS:
		return "https://" + address + path
	default:
		return "http://" + address + path
	}
}
