package ulid_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/ulid"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	var g ulid.Generator
	// 1469918176385 ms is the specification's own example.
	id := g.New(time.UnixMilli(1469918176385))
	require.Len(t, id, 26)
	require.Equal(t, "01ARYZ6S41", id[:10])
	require.Empty(t, strings.Trim(id, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"))
}

func TestMonotonicWhenTheClockStandsOrStepsBack(t *testing.T) {
	t.Parallel()
	var g ulid.Generator
	now := time.Now()
	last := ""
	for i := range 10_000 {
		at := now
		if i%3 == 1 {
			at = now.Add(-time.Duration(i) * time.Hour)
		}
		id := g.New(at)
		require.Greater(t, id, last)
		last = id
	}
	require.Greater(t, g.New(time.UnixMilli(-5)), last)
}

func TestMonotonicUnderConcurrency(t *testing.T) {
	t.Parallel()
	var g ulid.Generator
	const goroutines, each = 8, 2000
	ids := make([][]string, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range each {
				ids[i] = append(ids[i], g.New(time.Now()))
			}
		})
	}
	wg.Wait()
	var all []string
	for _, own := range ids {
		require.True(t, slices.IsSorted(own), "each goroutine sees its ids rise")
		all = append(all, own...)
	}
	slices.Sort(all)
	require.Len(t, slices.Compact(all), goroutines*each)
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		ulid.New(time.Now())
	}
}
