package tablestats_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/tablestats"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestTheKindsThatWerePausedFirstHaveAnAge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	stats := &outbox.Stats{}
	for i := range 2 * tablestats.MaxPaused {
		kind := outbox.EventKind{AggregateType: outbox.Global, EventType: outbox.EventType(fmt.Sprintf("T%03d", i))}
		since := now.Add(-time.Duration(i) * time.Minute)
		stats.Paused = append(stats.Paused, outbox.Pause{Kind: kind, Since: since}, outbox.Pause{Kind: kind, AggregateID: "1", Since: since.Add(-time.Hour)})
	}
	var got []string
	tablestats.Values{Stats: stats, At: now}.EachPause(func(kind outbox.EventKind, seconds float64) {
		got = append(got, fmt.Sprint(kind.EventType, " ", seconds/60))
	})
	require.Len(t, got, tablestats.MaxPaused)
	require.Equal(t, "T199 199", got[0])
	require.Equal(t, "T100 100", got[tablestats.MaxPaused-1])
	tablestats.Values{}.EachPause(func(outbox.EventKind, float64) { require.Fail(t, "the table could not be read") })
}
