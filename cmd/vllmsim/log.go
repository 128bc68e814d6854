package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	infoLevel    = "INFO"
	warningLevel = "WARNING"
	errorLevel   = "ERROR"
)

// speaker is the process that the log says a line comes from.
type speaker struct {
	name string // APIServer, EngineCore, Worker_TP0
	pid  int
}

func (s speaker) String() string { return fmt.Sprintf("(%s pid=%d) ", s.name, s.pid) }

// logger writes lines in vLLM's format. All processes share the terminal, so a line is one write.
type logger struct {
	mu  sync.Mutex
	out io.Writer // vLLM's own lines
	err io.Writer // uvicorn, tracebacks, progress
	rel release
}

func newLogger(rel release) *logger { return &logger{out: os.Stdout, err: os.Stderr, rel: rel} }

// line writes text with the prefix that every vLLM line has; a text of several lines gets it on each.
func (l *logger) line(who speaker, level, where, text string) {
	stamp := time.Now().Format("01-02 15:04:05")
	var b strings.Builder
	for part := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(&b, "%s%s %s [%s] %s\n", who, level, stamp, where, part)
	}
	l.write(l.out, b.String())
}

// plain writes text that does not come from vLLM's logger. Up to 0.25 each process decorated all it printed.
func (l *logger) plain(who speaker, text string) {
	if !l.rel.prefixAll {
		l.write(l.err, text+"\n")
		return
	}
	l.write(l.err, who.String()+strings.ReplaceAll(text, "\n", "\n"+who.String())+"\n")
}

// bare writes text as it is.
func (l *logger) bare(text string) { l.write(l.err, text) }

func (l *logger) write(w io.Writer, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	io.WriteString(w, text)
}

// release is what differs between the versions that were measured.
type release struct {
	version      string
	prefixAll    bool // uvicorn's lines and tracebacks carry the process prefix
	drainRefuses bool // a drain closes the port; else it keeps answering, requests with 500
	stopAborts   bool // a stop without a drain ends open streams; else they hang and so does the server
	termExits    bool // the second SIGTERM while loading gives exit 1; else death by SIGINT
	loadsPartly  bool // a missing shard is noticed only after the others are loaded
	fingerprint  bool // answers carry a system_fingerprint
}

// releaseOf takes versions before 0.30 for 0.25.1, all others for 0.32.0. Nothing in between was measured.
func releaseOf(version string) release {
	parts := strings.SplitN(version, ".", 3)
	r := release{version: version, fingerprint: true}
	if len(parts) > 1 && parts[0] == "0" {
		if minor, err := strconv.Atoi(parts[1]); err == nil && minor < 30 {
			return release{version: version, prefixAll: true, drainRefuses: true, stopAborts: true, termExits: true, loadsPartly: true}
		}
	}
	return r
}
