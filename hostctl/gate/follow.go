package gate

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"time"
)

const (
	journalctl = "/usr/bin/journalctl"
	// maxLine bounds a line of an engine's log, in bytes. Progress bars draw themselves many times in one.
	maxLine = 64 << 10
)

// follow reads the log of a unit's invocation from its beginning, as it grows, until stop is called. The channel gets each
// line once; it is closed when there is no more to read. Where the journal cannot be read there are no lines: a start
// does not depend on them.
func follow(ctx context.Context, invocationID string) (lines <-chan string, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan string, 64)
	cmd := exec.CommandContext(ctx, journalctl, "--quiet", "--no-pager", "--follow", "--lines=all", "--output=cat",
		"_SYSTEMD_INVOCATION_ID="+invocationID)
	cmd.Env = []string{}
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if invocationID == "" || err != nil || cmd.Start() != nil {
		close(told)
		return told, cancel
	}
	go func() {
		defer close(told)
		_ = eachLine(out, func(line string) bool {
			select {
			case told <- line:
				return true
			case <-ctx.Done():
				return false
			}
		})
		_ = cmd.Wait() // it ends by our SIGKILL
	}()
	return told, func() {
		// Its death is not waited for: closing what it watches takes the kernel 10 ms, and a start would take them longer.
		_ = cmd.Process.Kill()
		cancel()
	}
}

// eachLine calls do for each line, until it returns false. What is beyond maxLine of a line is dropped.
func eachLine(r io.Reader, do func(line string) bool) error {
	reader := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := reader.ReadSlice('\n')
		text := strings.TrimRight(string(line), "\n")
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = reader.ReadSlice('\n')
		}
		if err != nil {
			return err
		}
		if !do(text) {
			return nil
		}
	}
}
