package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// silent is a store whose first call of a kind gets no answer until its context
// ends.
type silent struct {
	*outboxtest.Store
	call string
	once sync.Once
}

func (s *silent) memory() *outboxtest.Store { return s.Store }

func (s *silent) hang(ctx context.Context, call string) (err error) {
	if call == s.call {
		s.once.Do(func() {
			<-ctx.Done()
			err = ctx.Err()
		})
	}
	return err
}

func (s *silent) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if err := s.hang(ctx, "Poll"); err != nil {
		return outbox.Batch{}, err
	}
	b, err := s.Store.Poll(ctx, db, q)
	if s.call == "Mark dead" { // which the poller calls for rows that it cannot decode
		for _, env := range b.Envelopes {
			b.Undecodable = append(b.Undecodable, outbox.Undecodable{EventID: env.EventID, Err: errors.New("no such headers")})
		}
		b.Envelopes = nil
	}
	return b, err
}

func (s *silent) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if err := s.hang(ctx, "Claim"); err != nil {
		return outbox.Batch{}, err
	}
	return s.Store.Claim(ctx, db, q)
}

func (s *silent) NextDue(ctx context.Context, db outbox.DB, after time.Time) (time.Time, error) {
	if err := s.hang(ctx, "NextDue"); err != nil {
		return time.Time{}, err
	}
	return s.Store.NextDue(ctx, db, after)
}

func (s *silent) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if err := s.hang(ctx, "Mark "+kind.String()); err != nil {
		return nil, err
	}
	return s.Store.Mark(ctx, db, kind, marks)
}

func (s *silent) Purge(ctx context.Context, db outbox.DB, q outbox.PurgeQuery) (int, error) {
	if err := s.hang(ctx, "Purge"); err != nil {
		return 0, err
	}
	return s.Store.Purge(ctx, db, q)
}

// One call that gets no answer is one failure that is logged and tried again: it
// does not stop the poller, or the purger, for ever.
func TestACallThatGetsNoAnswerIsTriedAgain(t *testing.T) {
	t.Parallel()
	single := outbox.SingleNode{Dispatch: outbox.DispatchOptions{HotCapacity: 1}, Poll: outbox.PollOptions{Interval: time.Second}}
	multi := outbox.MultiNode{Dispatch: single.Dispatch, Poll: single.Poll}
	for name, tt := range map[string]struct {
		mode   outbox.Mode
		call   string
		says   string
		status outbox.Status
	}{
		"poll":                      {single, "Poll", "polling failed", outbox.StatusDone},
		"next due":                  {single, "NextDue", "polling failed", outbox.StatusDone},
		"claim":                     {multi, "Claim", "polling failed", outbox.StatusDone},
		"next due beside claims":    {multi, "NextDue", "polling failed", outbox.StatusDone},
		"marking what is no event":  {single, "Mark dead", "could not be marked dead", outbox.StatusDead},
		"purging beside deliveries": {single, "Purge", "purging failed", outbox.StatusDone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, book := &silent{Store: outboxtest.NewStore(), call: tt.call}, &logbook{}
				e := start(t, outbox.Config{
					Store: store, Mode: tt.mode, Logger: slog.New(book),
					Purge: &outbox.PurgeOptions{Interval: time.Second, Retention: time.Hour},
				}, func(context.Context, outbox.Envelope) (outbox.Result, error) { return outbox.Done(), nil })
				// What no hot path carries is the poller's.
				writer := build(t, outbox.Config{Store: store.Store, Mode: outbox.WriterOnly{}}, nil)
				time.Sleep(time.Millisecond)
				writer.write(said("cold"))
				time.Sleep(40 * time.Second)
				row, _ := store.Row("cold")
				require.Equal(t, tt.status, row.Status)
				require.Len(t, book.about(tt.says), 1)
				time.Sleep(2 * time.Hour)
				_, there := store.Row("cold")
				require.False(t, there, "the purger goes on too")
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}
