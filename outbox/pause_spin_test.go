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

// counting is a store that counts the statements of a poller. Each takes a millisecond.
type counting struct {
	*outboxtest.Store
	n atomic.Int64
}

func (s *counting) memory() *outboxtest.Store { return s.Store }

func (s *counting) count() {
	s.n.Add(1)
	time.Sleep(time.Millisecond)
}

func (s *counting) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	s.count()
	return s.Store.Poll(ctx, db, q)
}

func (s *counting) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	s.count()
	return s.Store.Claim(ctx, db, q)
}

func (s *counting) ReadRuns(ctx context.Context, db outbox.DB, q outbox.RunQuery) (outbox.Runs, error) {
	s.count()
	return s.Store.ReadRuns(ctx, db, q)
}

func (s *counting) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	s.count()
	return s.Store.Mark(ctx, db, kind, marks)
}

// A pause costs no more statements than an idle table, also where a process died.
func TestAPausedEventAtTheHeadDoesNotKeepThePollerBusy(t *testing.T) {
	t.Parallel()
	for name, mode := range everyMode {
		for after, died := range map[string]bool{"a start": false, "a death": true} {
			t.Run(name+" after "+after, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := &counting{Store: outboxtest.NewStore()}
					ctx := t.Context()
					var got arrivals
					listen := func(_ context.Context, env outbox.Envelope) error {
						got.add(env.EventID)
						return nil
					}
					writer := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
					other := of("a", "a-00000")
					other.EventType = "Other"
					writer.write(other)
					time.Sleep(time.Millisecond)
					writer.write(numbered("a", 3)[1:]...)
					if died {
						hold(t, store, "dead", time.Second)
						if name != "ordered" { // there it would be DEAD at once
							_, err := store.Store.Claim(ctx, nil, outbox.ClaimQuery{Now: time.Now(), Limit: 1, Lease: "dead/1", LeaseDuration: time.Hour})
							require.NoError(t, err)
						}
						time.Sleep(time.Hour)
					}
					require.NoError(t, writer.Pause(ctx, outbox.Pause{Kind: outbox.EventKind{EventType: "Other"}}))
					e := build(t, outbox.Config{Store: store, Mode: mode}, listen)
					require.NoError(t, e.Register(outbox.On("", "Other", outbox.ListenerFunc(listen))))
					require.NoError(t, e.Start(ctx))
					pass(10 * time.Minute) // 120 intervals
					require.Less(t, store.n.Load(), int64(1000))
					switch name {
					case "by key", "ordered":
						require.Empty(t, got.all(), "nothing overtakes a paused event")
					default:
						require.ElementsMatch(t, []string{"a-00001", "a-00002"}, got.all())
					}

					require.NoError(t, e.Resume(ctx, outbox.EventKind{EventType: "Other"}))
					pass(10 * time.Minute)
					require.ElementsMatch(t, []string{"a-00000", "a-00001", "a-00002"}, got.all())
					if name == "by key" || name == "ordered" {
						require.Equal(t, []string{"a-00000", "a-00001", "a-00002"}, got.all())
					}
					require.NoError(t, e.Close(context.Background()))
				})
			})
		}
	}
}
