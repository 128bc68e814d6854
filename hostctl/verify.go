package hostctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"vllmhost/hostctl/models"
	"vllmhost/unitgen"
)

// systemd-run and its bounds. A model on a cold network file system may take long to look at.
const (
	systemdRun    = "/usr/bin/systemd-run"
	verifyTimeout = 2 * time.Minute
	maxReport     = 16 << 20 // bytes; one line for each damaged file
)

// VerifyReport is what "vllmhost models verify --json" prints.
type VerifyReport struct {
	Schema string          `json:"schema"`
	OK     bool            `json:"ok"`
	Models []models.Report `json:"models"`
}

// verifyAs checks the model of an instance as the user of its unit: that proves permissions too, and root opens no file
// that others may have made. Where the unit sees other files than we do, or its user is known to systemd alone, it is done
// in a transient unit with the same view; else in a child of ours, which takes a fifth of the time.
func verifyAs(ctx context.Context, s unitgen.Section, unit []byte) (models.Report, error) {
	program, err := os.Executable()
	if err != nil {
		return models.Report{}, fmt.Errorf("cannot find this program: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout+time.Second)
	defer cancel()
	check := []string{program, "models", "verify", "--json", s.Model}
	view := unitgen.FileView(unit)
	as, ok := credentials(view, s.Model)
	if !ok || !isRoot() || mountedApart(unit) {
		return verifyBy(exec.CommandContext(ctx, systemdRun, append(transient(s, view), check...)...), s)
	}
	cmd := exec.CommandContext(ctx, check[0], check[1:]...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	return verifyBy(cmd, s)
}

// transient are the arguments of a systemd-run with a unit's view of the file system.
func transient(s unitgen.Section, view []string) []string {
	args := []string{"--quiet", "--pipe", "--wait", "--collect", "--service-type=exec",
		"--description=vllmhost: look at the model of " + s.Instance,
		"--property=RuntimeMaxSec=" + fmt.Sprint(int(verifyTimeout.Seconds())), "--property=LogLevelMax=warning"}
	for _, setting := range view {
		args = append(args, "--property="+setting)
	}
	return args
}

// verifyBy runs a command that prints a VerifyReport.
func verifyBy(cmd *exec.Cmd, s unitgen.Section) (models.Report, error) {
	cmd.Env = []string{} // nothing of ours concerns it
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &limited{&out, maxReport}, &limited{&failure, 4 << 10}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // a Ctrl-C is ours to handle
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var report VerifyReport
	if json.Unmarshal(out.Bytes(), &report) == nil && len(report.Models) == 1 {
		return report.Models[0], nil
	}
	var failed struct {
		Error string `json:"error"` // vllmhost/error/v1
	}
	if json.Unmarshal(out.Bytes(), &failed) == nil && failed.Error != "" {
		return models.Report{}, errors.New(failed.Error)
	}
	if err == nil {
		err = errors.New("no report")
	}
	if text := strings.TrimSpace(failure.String()); text != "" {
		err = fmt.Errorf("%v: %s", err, text)
	}
	return models.Report{}, fmt.Errorf("cannot check the model %q: %v", s.Model, err)
}

// limited drops what comes after its limit.
type limited struct {
	buffer *bytes.Buffer
	left   int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	l.buffer.Write(p[:n])
	return len(p), nil
}
