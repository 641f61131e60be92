package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// Dead events, and those that another node delivers, are never asked for.
func TestCommitTimesDoNotGrowForEver(t *testing.T) {
	t.Parallel()
	times := newTimes()
	committed := newCommitTimes(&deliveries{times: times})
	for i := range 2 * keptDeliveries {
		committed.AfterCommit(t.Context(), []outbox.Envelope{{EventID: fmt.Sprint(i)}})
	}
	require.LessOrEqual(t, len(times.at), keptDeliveries)
	last := outbox.Envelope{EventID: fmt.Sprint(2*keptDeliveries - 1), OccurredAt: time.Now()}
	require.Positive(t, times.since(last, time.Now().Add(time.Second)))
}
