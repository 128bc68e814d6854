// Package systemdtest is a scripted systemd for tests: org.freedesktop.systemd1 on a dbus-daemon of the test's own.
// Units are values, starts and stops do what their Outcome says, and every method call is counted, so that a test can
// say "no reload, no job". Signals can be lost, jobs cancelled, calls refused, the bus restarted.
//
// It imitates what a client can see, not what systemd does: it starts no process and reads no unit file.
package systemdtest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	busName      = "org.freedesktop.systemd1"
	managerPath  = dbus.ObjectPath("/org/freedesktop/systemd1")
	managerIface = busName + ".Manager"
	propsIface   = "org.freedesktop.DBus.Properties"
)

// Server is a scripted systemd. It is safe for concurrent use.
type Server struct {
	t   testing.TB
	dir string

	busMu  sync.Mutex // held while the bus is started or stopped
	daemon *exec.Cmd
	exited chan struct{} // closed when daemon has ended

	mu          sync.Mutex
	conn        *dbus.Conn // nil while the bus is down
	version     string
	units       map[string]*Unit
	jobs        map[dbus.ObjectPath]*job
	lastJob     uint32
	invocations uint64
	subscribers map[string]bool // unique names that called Subscribe since the bus started
	calls       map[string]int
	deny        map[string]string // method: D-Bus error name
	before      map[string]func()
}

// Start starts a bus and a systemd on it, and ends both with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Fatal("this test needs dbus-daemon. On Debian: apt-get install dbus-daemon (Debian 11: dbus)")
	}
	// Not t.TempDir(): the name of a long test makes a path too long for a socket.
	dir, err := os.MkdirTemp("", "systemdtest-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		t: t, dir: dir, version: "257.13-1~deb13u1",
		units: make(map[string]*Unit), jobs: make(map[dbus.ObjectPath]*job),
		calls: make(map[string]int), deny: make(map[string]string), before: make(map[string]func()),
	}
	t.Cleanup(func() {
		s.StopBus()
		os.RemoveAll(dir)
	})
	s.StartBus()
	return s
}

// Address is the bus's D-Bus address; it stays the same over restarts.
func (s *Server) Address() string { return "unix:path=" + filepath.Join(s.dir, "bus") }

// RestartBus ends the bus and starts it anew: connections end, and systemd comes back with its units and jobs.
func (s *Server) RestartBus() {
	s.StopBus()
	s.StartBus()
}

// StopBus ends the bus. Jobs go on without it; nobody hears of their end.
func (s *Server) StopBus() {
	s.busMu.Lock()
	defer s.busMu.Unlock()
	if s.daemon == nil {
		return
	}
	s.leave()
	_ = s.daemon.Process.Kill()
	<-s.exited
	s.daemon = nil
}

// StartBus starts the bus after StopBus.
func (s *Server) StartBus() {
	s.t.Helper()
	s.busMu.Lock()
	defer s.busMu.Unlock()
	if s.daemon != nil {
		return
	}
	if err := s.startDaemon(); err != nil {
		s.t.Errorf("cannot start dbus-daemon: %v", err)
		return
	}
	s.join()
}

// LeaveBus takes systemd off the bus, which stays, as for a moment after a restart of the bus.
func (s *Server) LeaveBus() {
	s.busMu.Lock()
	defer s.busMu.Unlock()
	s.leave()
}

// JoinBus brings systemd back after LeaveBus.
func (s *Server) JoinBus() {
	s.t.Helper()
	s.busMu.Lock()
	defer s.busMu.Unlock()
	s.join()
}

// leave is called with busMu held.
func (s *Server) leave() {
	s.mu.Lock()
	conn := s.conn
	s.conn = nil
	s.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// join is called with busMu held.
func (s *Server) join() {
	s.t.Helper()
	conn, err := s.serve()
	if err != nil {
		s.t.Errorf("cannot serve on the test's bus: %v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
	s.subscribers = make(map[string]bool)
}

// config lets everybody do everything: what is refused, Deny refuses.
const config = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
`

// startDaemon starts dbus-daemon and returns when it listens.
func (s *Server) startDaemon() error {
	file := filepath.Join(s.dir, "bus.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, s.Address()), 0o600); err != nil {
		return err
	}
	_ = os.Remove(filepath.Join(s.dir, "bus"))
	cmd := exec.Command("dbus-daemon", "--config-file="+file, "--nofork", "--nopidfile", "--print-address=1")
	var complaint strings.Builder
	cmd.Stderr = &complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // when the test is killed, so is the bus
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // Pdeathsig looks at the thread that started the process
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return err
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		<-exited
		return errors.New(strings.TrimSpace(complaint.String()))
	}
	s.daemon, s.exited = cmd, exited
	return nil
}

// serve connects to the bus and becomes systemd there.
func (s *Server) serve() (*dbus.Conn, error) {
	conn, err := dbus.Connect(s.Address())
	if err != nil {
		return nil, err
	}
	for _, err := range []error{
		conn.Export(manager{s}, managerPath, managerIface),
		conn.ExportSubtree(properties{s}, managerPath, propsIface),
	} {
		if err != nil {
			conn.Close()
			return nil, err
		}
	}
	reply, err := conn.RequestName(busName, dbus.NameFlagDoNotQueue)
	if err == nil && reply != dbus.RequestNameReplyPrimaryOwner {
		err = fmt.Errorf("somebody else is %s", busName)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Calls says how often a method was called: "StartUnit", "StopUnit", "KillUnit", "ResetFailedUnit", "Reload",
// "Subscribe", "ListUnitsByPatterns", "Get", "GetAll". Refused calls count.
func (s *Server) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// Deny refuses every further call of a method, as systemd does to a user without the right. It counts all the same.
func (s *Server) Deny(method string) {
	s.Refuse(method, "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired")
}

// Refuse answers every further call of a method with a D-Bus error; an empty name ends that.
func (s *Server) Refuse(method, errorName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deny[method] = errorName
}

// OnCall runs a function once, when a method is called next, before anything else is done for that call.
func (s *Server) OnCall(method string, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before[method] = f
}

// SetVersion sets the text of the property Version.
func (s *Server) SetVersion(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

// enter counts a call and refuses it where Refuse said so. Called with mu held.
func (s *Server) enter(method string) *dbus.Error {
	s.calls[method]++
	if f := s.before[method]; f != nil {
		delete(s.before, method)
		s.mu.Unlock()
		f()
		s.mu.Lock()
	}
	switch name := s.deny[method]; name {
	case "":
		return nil
	case "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired":
		return dbus.NewError(name, []any{"Interactive authentication required."})
	default:
		return dbus.NewError(name, []any{"Refused by the test."})
	}
}

// emit sends a signal if anybody has subscribed. Called with mu held.
func (s *Server) emit(path dbus.ObjectPath, name string, values ...any) {
	if s.conn != nil && len(s.subscribers) > 0 {
		_ = s.conn.Emit(path, name, values...)
	}
}

// WaitFor waits until a condition on a unit holds, and fails the test after ten seconds.
func (s *Server) WaitFor(name string, holds func(Unit) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if u, ok := s.Unit(name); ok && holds(u) {
			return
		}
		if time.Now().After(deadline) {
			u, _ := s.Unit(name)
			s.t.Fatalf("%s never came to the state waited for; it is %s (%s)", name, u.Active, u.Sub)
		}
	}
}
