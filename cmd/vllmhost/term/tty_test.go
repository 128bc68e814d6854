package term

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTTY has New look at a real terminal.
func TestTTY(t *testing.T) {
	for _, test := range []struct {
		environment map[string]string
		want        string // beginning of what an error looks like
		unicode     bool
	}{
		{map[string]string{"TERM": "xterm", "LANG": "C.UTF-8"}, "vllmhost: \x1b[31merror:\x1b[0m no", true},
		{map[string]string{"TERM": "xterm", "LANG": "C"}, "vllmhost: \x1b[31merror:\x1b[0m no", false},
		{map[string]string{"TERM": "xterm", "LANG": "C.UTF-8", "NO_COLOR": "1"}, "vllmhost: error: no", true},
		{map[string]string{"TERM": "dumb", "LANG": "C.UTF-8"}, "vllmhost: error: no", false},
	} {
		master, slave := pty(t)
		p := New(slave, slave, func(name string) string { return test.environment[name] })
		p.Error(errors.New("no"), 1)
		got := make([]byte, 100)
		n, err := master.Read(got)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(got[:n]), test.want) {
			t.Errorf("in %v: %q, want %q", test.environment, got[:n], test.want)
		}
		if p.out.unicode != test.unicode {
			t.Errorf("in %v: symbols %v, want %v", test.environment, p.out.unicode, test.unicode)
		}
		if got := p.out.width(); got != 72 {
			t.Errorf("width = %d, want 72", got)
		}
	}
}

// pty opens a pseudo-terminal of 72 columns, see pts(4).
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 72}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}
