package probe_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vllmhost/hostctl/probe"
)

// The environment's proxies are not for us, nor is another host that the server names.
func TestNobodyElseIsAsked(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("somebody else was asked") }))
	defer other.Close()
	for _, name := range []string{"http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, other.URL)
	}
	target := serve(t, http.RedirectHandler(other.URL, http.StatusFound))
	target.APIKey = "s3cret"
	var status *probe.StatusError
	if err := target.Health(t.Context()); !errors.As(err, &status) || status.Code != http.StatusFound {
		t.Errorf("got %v", err)
	}
}

func TestTheKeyIsNotShown(t *testing.T) {
	target := probe.Target{Port: 1, APIKey: "s3cret\nvalue"}
	text, err := json.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%v %+v %#v %s", target, target, target, text)
	for _, err := range []error{target.Health(t.Context()), serveWrongKey(t)} {
		if err == nil {
			t.Error("a broken key is accepted")
		}
		shown += fmt.Sprint(err)
	}
	if strings.Contains(shown, "s3cret") {
		t.Errorf("shown: %s", shown)
	}
}

func serveWrongKey(t *testing.T) error {
	target := serve(t, &engine{key: "right"})
	target.APIKey = "s3cret"
	_, err := target.Listed(t.Context())
	return err
}

// Each of these servers wants to hang us, fill our memory or write on the administrator's terminal.
func TestHostileServers(t *testing.T) {
	bomb := new(bytes.Buffer)
	packer := gzip.NewWriter(bomb)
	io.Copy(packer, io.LimitReader(endless(' '), 8<<20))
	packer.Close()
	tests := map[string]struct {
		answer func(net.Conn)
		want   string
	}{
		"garbage":           {raw("\x1b[2J\x00\r\n\r\n"), `no answer to /v1/models: net/http: HTTP/1.x transport connection broken: malformed HTTP response "\\x1b[2J\\x00"`},
		"nothing":           {func(net.Conn) {}, `the server closed the connection before it had answered /v1/models`},
		"half a body":       {raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), `the server closed the connection before it had answered /v1/models`},
		"not JSON":          {body("<html>\x1b]0;owned\a</html>"), `the answer to /v1/models is not what vLLM sends: "<html>\x1b]0;owned\a</html>"`},
		"other JSON":        {body(`{"data":{"id":7}}`), `the answer to /v1/models is not what vLLM sends: "{"data":{"id":7}}"`},
		"deep JSON":         {body(strings.Repeat("[", 500_000)), `the answer to /v1/models is not what vLLM sends: "` + strings.Repeat("[", 200) + `..."`},
		"no end":            {endlessBody("HTTP/1.1 200 OK\r\n\r\n"), `the answer to /v1/models is longer than 1 MiB`},
		"error without end": {endlessBody("HTTP/1.1 500 Oops\r\n\r\n"), `/v1/models answers 500 Internal Server Error: ` + strings.Repeat("a", 200) + "..."},
		"headers without end": {endlessBody("HTTP/1.1 200 OK\r\nX: "),
			`no answer to /v1/models: net/http: HTTP/1.x transport connection broken: net/http: server response headers exceeded 65536 bytes; aborted`},
		"a bomb": {raw(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", bomb.Len(), bomb)),
			`the answer to /v1/models is not what vLLM sends: "\x1f\x8b\b\x00`},
		"slow":           {func(net.Conn) { time.Sleep(400 * time.Millisecond) }, `no answer to /v1/models in `},
		"a slow trickle": {trickle, `no answer to /v1/models in `},
		"switch":         {raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), `/v1/models answers 101 Switching Protocols`},
		"an evil error":  {raw("HTTP/1.1 418 \r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"\\u001b[2J\\u202eevil\"}}"), `/v1/models answers 418 I'm a teapot: \x1b[2J\u202eevil`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := serveRaw(t, test.answer)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if strings.Contains(name, "slow") {
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			}
			defer cancel()
			_, err := target.Listed(ctx)
			if err == nil {
				t.Fatal("it is believed")
			}
			got := strings.TrimPrefix(err.Error(), "cannot ask "+target.String()+": ")
			if !strings.HasPrefix(got, test.want) {
				t.Errorf("got  %.500s\nwant %s", got, test.want)
			}
			if strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r == '\u202e' }) {
				t.Errorf("not escaped: %q", got)
			}
			if strings.Contains(name, "slow") && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v is no timeout", err)
			}
		})
	}
}

// serveRaw starts a server that reads one request and answers with bytes of its own.
func serveRaw(t *testing.T, answer func(net.Conn)) probe.Target {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				if _, err := http.ReadRequest(bufio.NewReader(connection)); err == nil {
					answer(connection)
				}
			}()
		}
	}()
	return target(t, listener.Addr())
}

func raw(text string) func(net.Conn) {
	return func(c net.Conn) { io.WriteString(c, text) }
}

func body(text string) func(net.Conn) {
	return raw(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
}

func endlessBody(begin string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, begin)
		io.Copy(c, endless('a')) // until the client has enough
	}
}

func trickle(c net.Conn) {
	io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	for range 40 {
		if _, err := io.WriteString(c, " "); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

type endless byte

func (e endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(e)
	}
	return len(b), nil
}
