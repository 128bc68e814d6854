package systemd

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// systemd's own socket can overlook the first message; the client has to ask again.
func TestFirstMessageOverlooked(t *testing.T) {
	dir, err := os.MkdirTemp("", "private-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("unix", filepath.Join(dir, "private"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const overlooked = 2
	heard := make(chan int, 1)
	go func() {
		peer, err := listener.Accept()
		if err != nil {
			return
		}
		defer peer.Close()
		calls := bufio.NewReader(peer)
		if err := authenticate(peer, calls); err != nil {
			t.Error(err)
			return
		}
		for n := 1; ; n++ {
			call, err := dbus.DecodeMessage(calls)
			if err != nil {
				return
			}
			if n <= overlooked {
				continue
			}
			answer := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
			}}
			if err := answer.EncodeTo(peer, binary.LittleEndian); err != nil {
				t.Error(err)
			}
			heard <- n
			return
		}
	}()

	life, end := context.WithCancel(t.Context())
	defer end()
	c := &Client{life: life}
	ctx, cancel := context.WithTimeout(life, 20*time.Second)
	defer cancel()
	if _, err := c.dialTo(ctx, "unix:path="+listener.Addr().String(), true); err != nil {
		t.Fatal(err)
	}
	if n := <-heard; n != overlooked+1 {
		t.Errorf("answered after %d calls, want %d", n, overlooked+1)
	}
}

// authenticate is the server's side of the D-Bus handshake.
func authenticate(peer net.Conn, calls *bufio.Reader) error {
	for {
		line, err := calls.ReadString('\n')
		if err != nil {
			return err
		}
		answer := ""
		switch words := strings.Fields(strings.TrimLeft(line, "\x00")); words[0] {
		case "AUTH":
			if len(words) == 1 { // which ones there are
				answer = "REJECTED EXTERNAL\r\n"
			} else {
				answer = "OK 1234deadbeef1234deadbeef12345678\r\n"
			}
		case "NEGOTIATE_UNIX_FD":
			answer = "AGREE_UNIX_FD\r\n"
		case "BEGIN":
			return nil
		}
		if _, err := peer.Write([]byte(answer)); err != nil {
			return err
		}
	}
}
