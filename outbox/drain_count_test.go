package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// endsBefore ends a context before the events that are left are counted.
type endsBefore struct {
	*outboxtest.Store
	end func()
}

func (s *endsBefore) memory() *outboxtest.Store { return s.Store }

func (s *endsBefore) Stats(ctx context.Context, db outbox.DB, now time.Time, paused []outbox.EventKind) (outbox.StoreStats, error) {
	s.end()
	if err := ctx.Err(); err != nil {
		return outbox.StoreStats{}, err
	}
	return s.Store.Stats(ctx, db, now, paused)
}

// The result is valid, however late the context ends.
func TestTheContextEndsAsADrainCounts(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode outbox.Mode) {
		ctx, cancel := context.WithCancel(t.Context())
		store := &endsBefore{Store: outboxtest.NewStore(), end: cancel}
		e := build(t, outbox.Config{Store: store, Mode: mode}, noop)
		e.write(numbered("a", 5)...)
		got, err := e.Drain(ctx, 3)
		require.NoError(t, err, "all that may be delivered is")
		require.Equal(t, outbox.Drained{Done: 3, Left: 2, More: true}, got)
	})
}
