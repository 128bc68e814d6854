package gate

import (
	"context"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"
	"unicode"
)

var (
	// logPrefix is what vLLM puts before a line: "(Worker pid=7) ERROR 11-30 21:58:22 [core.py:12] ".
	logPrefix = regexp.MustCompile(`^(\([\w-]+ pid=\d+\) )?([A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?`)

	// fatal is the line that ends a Python traceback, or argparse's last word.
	fatal = regexp.MustCompile(`^([A-Za-z_][\w.]*(Error|Exception): |vllm( serve)?: error: )`)
)

// wrappers are errors that only say that another process of the engine had one.
var wrappers = [...]string{
	"Engine core initialization failed",
	"WorkerProc initialization failed",
	"EngineCore encountered an issue",
}

// Reason finds in the last lines of an engine's log why it ended: the last error that is not merely about another one.
// It returns "" when there is none. The text is foreign.
func Reason(lines []string) string {
	for i := len(lines) - 1; i >= 0; i-- {
		line := plain(lines[i])
		if !fatal.MatchString(line) || isWrapper(line) {
			continue
		}
		// pydantic tells what is wrong in the line below.
		if strings.Contains(line, "validation error") && i+1 < len(lines) {
			line += ": " + strings.TrimSpace(plain(lines[i+1]))
		}
		return line
	}
	return ""
}

func plain(line string) string { return line[len(logPrefix.FindString(line)):] }

func isWrapper(line string) bool {
	for _, w := range wrappers {
		if strings.Contains(line, w) {
			return true
		}
	}
	return false
}

// Bounds of what is read of an engine's log: a failed start prints some 180 lines after its root cause.
const (
	journalLines   = "500"
	maxJournal     = 1 << 20
	journalTimeout = 5 * time.Second
	maxReason      = 400 // of a text that systemctl status shows in one line
)

// lastWords returns why the engine ended that systemd started with this invocation id, as far as the journal knows.
func lastWords(ctx context.Context, invocationID string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalTimeout)
	defer cancel()
	_ = exec.CommandContext(ctx, journalctl, "--sync").Run() // what was written just now is there, too
	cmd := exec.CommandContext(ctx, journalctl, "--no-pager", "--output=cat", "--lines="+journalLines,
		"_SYSTEMD_INVOCATION_ID="+invocationID)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(out, maxJournal))
	cancel()
	_ = cmd.Wait()
	reason := strings.Map(printable, Reason(strings.Split(string(text), "\n")))
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "..."
	}
	return reason
}

// printable replaces what could change how a terminal or a journal shows the rest of a line.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}
