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

// follow reads the log of a unit's invocation from its beginning, as it grows, until ctx ends. The channel gets each
// line once; it is closed when there is no more to read. Where the journal cannot be read there are no lines: a start
// does not depend on them.
func follow(ctx context.Context, invocationID string) <-chan string {
	lines := make(chan string, 64)
	cmd := exec.CommandContext(ctx, journalctl, "--quiet", "--no-pager", "--follow", "--lines=all", "--output=cat",
		"_SYSTEMD_INVOCATION_ID="+invocationID)
	cmd.Env = []string{}
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if invocationID == "" || err != nil || cmd.Start() != nil {
		close(lines)
		return lines
	}
	go func() {
		defer close(lines)
		defer cmd.Wait() // it ends by our SIGKILL
		_ = eachLine(out, func(line string) bool {
			select {
			case lines <- line:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	return lines
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
