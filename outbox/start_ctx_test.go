package outbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// endsBehind ends a context behind the statement that takes the hold; with lost, the answer of that
// statement is lost.
type endsBehind struct {
	*outboxtest.Store
	end  func()
	lost bool
}

func (s *endsBehind) memory() *outboxtest.Store { return s.Store }

func (s *endsBehind) SetRanges(ctx context.Context, db outbox.DB, was string, by time.Time, next outbox.Ranges) (bool, error) {
	set, err := s.Store.SetRanges(ctx, db, was, by, next)
	if s.end == nil {
		return set, err
	}
	s.end()
	s.end = nil
	if s.lost {
		return false, context.Canceled
	}
	return set, err
}

// The context of a Start or a Drain may end at any time: both return, and no process holds the table.
func TestTheContextEndsAsTheHoldBegins(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"answered": false, "lost": true} {
		for call, run := range map[string]func(e *engine, ctx context.Context) error{
			"Start": func(e *engine, ctx context.Context) error { return e.Start(ctx) },
			"Drain": func(e *engine, ctx context.Context) error { _, err := e.Drain(ctx, 10); return err },
		} {
			t.Run(call+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					store := &endsBehind{Store: outboxtest.NewStore(), end: cancel, lost: lost}
					e := build(t, outbox.Config{Store: store, Mode: outbox.SingleNode{}}, noop)
					e.write(said("a"))
					require.ErrorIs(t, run(e, ctx), context.Canceled)
					require.Empty(t, rangesOf(t, store.Store))
				})
			})
		}
	}
}
