package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// questioned is a store that counts how often it is asked when the next event is due.
type questioned struct {
	*outboxtest.Store
	n atomic.Int64
}

func (s *questioned) memory() *outboxtest.Store { return s.Store }

func (s *questioned) NextDue(ctx context.Context, db outbox.DB, after time.Time) (time.Time, error) {
	if s.n.Add(1) == 10_000 {
		panic("the poller turns without reading")
	}
	return s.Store.NextDue(ctx, db, after)
}

// While an event of a process that died is delivered, no other event may be read in order. Events that
// become due meanwhile do not make the poller turn, and are delivered afterwards.
func TestThePollerRestsWhileNothingMayBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &questioned{Store: outboxtest.NewStore()}
		db := store.DB()
		died := outbox.Range{Name: "dead", Until: time.Now().Add(-time.Second)}
		set, err := store.SetRanges(t.Context(), db, "", time.Now().Add(time.Hour), outbox.Ranges{Version: "1", Ranges: []outbox.Range{died}})
		require.NoError(t, err)
		require.True(t, set)
		insert := func(id string, after time.Duration) { // another process wrote the event
			now := time.Now().UTC().Truncate(time.Microsecond)
			env := outbox.Envelope{EventID: id, EventType: "Said", AggregateType: outbox.Global, OccurredAt: now, AvailableAt: now.Add(after), Payload: outbox.RawJSON("1")}
			require.NoError(t, store.Insert(t.Context(), db, []outbox.Envelope{env}, "", time.Time{}))
		}
		insert("1-suspect", 0)
		insert("2-behind", 0)
		time.Sleep(time.Second)
		var got arrivals
		start(t, outbox.Config{Store: store, Mode: outbox.Ordered{}}, func(_ context.Context, env outbox.Envelope) error {
			if got.add(env.EventID); env.EventID == "1-suspect" {
				time.Sleep(2 * time.Minute)
			}
			return nil
		})
		time.Sleep(2 * time.Second)
		insert("3-later", time.Second)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"1-suspect"}, got.all())
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"1-suspect", "2-behind", "3-later"}, got.all())
	})
}
