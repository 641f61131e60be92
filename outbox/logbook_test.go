package outbox_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// line is one log line.
type line struct {
	level   slog.Level
	message string
	attrs   map[string]slog.Value
}

// logbook is a handler that keeps every line.
type logbook struct {
	mu    sync.Mutex
	lines []line
	write func() // called with each line, without a lock; may be nil
}

func (b *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logbook) WithAttrs([]slog.Attr) slog.Handler       { panic("unused") }
func (b *logbook) WithGroup(string) slog.Handler            { panic("unused") }

func (b *logbook) Handle(_ context.Context, r slog.Record) error {
	l := line{r.Level, r.Message, map[string]slog.Value{}}
	r.Attrs(func(a slog.Attr) bool {
		l.attrs[a.Key] = a.Value
		return true
	})
	b.mu.Lock()
	b.lines = append(b.lines, l)
	b.mu.Unlock()
	if b.write != nil {
		b.write()
	}
	return nil
}

// about are the lines whose message holds the text.
func (b *logbook) about(text string) (found []line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		if strings.Contains(l.message, text) {
			found = append(found, l)
		}
	}
	return found
}

// problems are the lines above INFO.
func (b *logbook) problems() []line {
	return slices.DeleteFunc(b.all(), func(l line) bool { return l.level <= slog.LevelInfo })
}

func (b *logbook) all() []line { return b.about("") }

// counted is the sum of the lines' counts.
func counted(lines []line) (n int64) {
	for _, l := range lines {
		n += l.attrs["count"].Int64()
	}
	return n
}
