package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// keep keeps events with these errors, and returns what it logs.
func keep(t *testing.T, errs ...error) (r *Reader, wait time.Duration, log string) {
	t.Helper()
	var lines bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	defer slog.SetDefault(before)
	r = &Reader{batch: make([]outbox.Envelope, len(errs))}
	wait = r.keep(errs, 4*time.Second)
	return r, wait, lines.String()
}

func TestEventsThatFailTogetherAreOneLine(t *testing.T) {
	r, wait, log := keep(t, nil, errors.New("one"), errors.New("two"), outbox.Defer(time.Second))
	require.Len(t, r.batch, 3)
	require.Equal(t, 4*time.Second, wait)
	require.Equal(t, 1, strings.Count(log, "\n"), log)
	require.Contains(t, log, "events=2 first=one")
}

func TestAnOutageIsNoFailure(t *testing.T) {
	_, wait, log := keep(t, outbox.Defer(time.Second), outbox.Defer(9*time.Second))
	require.Equal(t, 9*time.Second, wait)
	require.Empty(t, log)
}

// A reader that published it again at once would turn without a pause.
func TestADeadEventIsTriedAgainAfterAPause(t *testing.T) {
	r, wait, log := keep(t, outbox.Dead(errors.New("too old")))
	require.Len(t, r.batch, 1)
	require.Equal(t, 4*time.Second, wait)
	require.Contains(t, log, "too old")
}
