package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

func TestEveryContenderTakesPartInWorksThatExist(t *testing.T) {
	t.Parallel()
	known, names := map[string]bool{}, map[string]bool{}
	for _, w := range works() {
		known[w.name] = true
		for _, v := range w.variants {
			known[w.name+"/"+v.name] = true
		}
	}
	for _, c := range contenders() {
		names[c.name] = true
		for _, name := range c.works {
			require.True(t, known[name], "%s takes part in %q", c.name, name)
		}
	}
	for _, c := range contenders() {
		require.True(t, c.against == "" || names[c.against], "%s is compared with %q", c.name, c.against)
	}
}

func TestAPayloadHasItsLengthAndItsNumber(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 7, 123_456, maxEvents - 1} {
		text := payload(n)
		require.Len(t, text, payloadBytes)
		require.Equal(t, n, number(text))
		require.Equal(t, n, number(strings.ReplaceAll(text, ":", ": ")), "with spaces")
	}
}

func TestAnEventArrivesOnce(t *testing.T) {
	t.Parallel()
	a := newArrivals()
	for _, n := range []int{0, 0, 31, 32, 32} {
		a.hear(n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, a.wait(ended, 3))
	require.ErrorContains(t, a.wait(ended, 4), "3 of 4 events arrived")
	require.EqualValues(t, 2, a.again.Load())
}

func TestTheDocumentKeepsWhatWasNotMeasuredNow(t *testing.T) {
	t.Parallel()
	docs := t.TempDir()
	file := filepath.Join(docs, "BENCHMARKS.md")
	require.NoError(t, os.WriteFile(file, []byte("before\n"+beginMark+"\nold\n"+endMark+"\nafter\n"), 0o600))
	before := measured(draining100k(), map[string][][]float64{"bare: claim and mark": {{90}, {110}}, "outbox": {{45}, {55}}}, "bare: claim and mark", "outbox")
	now := before
	before.Database, before.Machine = testdb.SQLite, "an old machine"
	now.Machine = "a new machine"
	require.NoError(t, results{Works: []workResult{before}}.writeTo(docs))
	require.NoError(t, results{Works: []workResult{now}}.writeTo(docs))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Regexp(t, `(?s)^before\n.*\| outbox \| 50.0 ±10% \(0.50\) \|.*SQLite.*\nafter\n$`, string(text))
	require.Contains(t, string(text), "Measured with:\n\n- PostgreSQL (drain): a new machine\n- SQLite (drain): an old machine\n")
	require.NotContains(t, string(text), "\nold\n")
	require.Equal(t, 2, strings.Count(string(text), "| outbox |"))
}
