package soak_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/proof/soak"
)

// A short soak: each event is delivered once beside a transaction that is held open. It
// takes two minutes where CI=true, and with OUTBOX_TEST_LONG also at a higher rate.
func TestSoak(t *testing.T) {
	t.Parallel()
	length, rate := 18*time.Second, 150
	if os.Getenv("CI") == "true" {
		length, rate = 2*time.Minute, 100
	}
	if os.Getenv("OUTBOX_TEST_LONG") != "" {
		length, rate = 2*time.Minute, 400
	}
	for _, target := range testdb.Main() {
		if target.Kind == testdb.SQLite { // its nodes would wait for each other
			continue
		}
		t.Run(string(target.Kind), func(t *testing.T) {
			t.Parallel()
			testdb.Open(t, target) // skips the test without a server
			result, err := soak.Run(t.Context(), soak.Options{Database: target.Kind, Time: length, Held: length / 3, Rate: rate}, nil)
			require.NoError(t, err)
			t.Log("\n" + result.String())
			require.Empty(t, result.Problems)
			require.NotZero(t, result.Written)
			require.Equal(t, result.Written, result.Delivered)
			var held, claims int
			for _, s := range result.Samples {
				claims += s.Claims.Count
				if s.Held {
					held++
				}
			}
			require.NotZero(t, held, "samples beside the held transaction")
			require.NotZero(t, claims)
		})
	}
}

// A short run by events: all events are delivered beside many that are pending, also after failures
// and replays of dead letters, and partitions are dropped.
func TestSoakByEvents(t *testing.T) {
	t.Parallel()
	testdb.Open(t, testdb.Main()[0]) // skips the test without a server
	const events = 6000
	result, err := soak.Run(t.Context(), soak.Options{
		Events: events, Pending: 2000, Nodes: 4, Rate: 200, Dead: 500, Every: 100 * time.Millisecond,
		Cold: 100, Partition: 250 * time.Millisecond, // some events are due after a second, when some partitions' time is over
	}, nil)
	require.NoError(t, err)
	t.Log("\n" + result.String())
	require.Empty(t, result.Problems)
	require.Equal(t, events, result.Written)
	require.Equal(t, events, result.Delivered)
	require.NotZero(t, result.Drops.Count, "dropped partitions")
	seen := map[string]bool{}
	for _, s := range result.Samples {
		for name, is := range map[string]bool{
			"pending": s.Pending > 0, "partitions": s.Partitions > 1, "write-ahead log": s.WAL > 0, "backlog": s.Backlog.Count > 0,
			"retries": s.Cold.Count > 0, "table": s.Table > 0, "indexes": s.Indexes > 0, "memory": s.Memory > 0,
		} {
			seen[name] = seen[name] || is
		}
	}
	for name, is := range seen {
		require.True(t, is, "no sample has %s", name)
	}
	require.NotEmpty(t, seen)
}
