package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
)

// hookLog writes what a unit's hook has to say as lines of the journal: bare, with the priority that sd-daemon(3) has
// systemd read off their beginning. Attributes are not used.
type hookLog struct{ out io.Writer }

func (h hookLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h hookLog) Handle(_ context.Context, r slog.Record) error {
	const err, warning, info = 3, 4, 6 // of syslog(3)
	priority := info
	switch {
	case r.Level >= slog.LevelError:
		priority = err
	case r.Level >= slog.LevelWarn:
		priority = warning
	}
	_, failed := fmt.Fprintf(h.out, "<%d>%s\n", priority, r.Message)
	return failed
}

func (h hookLog) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h hookLog) WithGroup(string) slog.Handler { return h }
