package outbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// amnesiac is a store that stores outcomes and loses its first answers.
type amnesiac struct {
	*outboxtest.Store
	lose atomic.Int32
}

func (s *amnesiac) memory() *outboxtest.Store { return s.Store }

func (s *amnesiac) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	n, err := s.Store.Mark(ctx, db, kind, marks)
	if s.lose.Add(-1) >= 0 {
		return nil, errors.New("the answer was lost")
	}
	return n, err
}

func TestALostAnswerDoesNotCountAnAttemptTwice(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"one node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &amnesiac{Store: outboxtest.NewStore()}
				store.lose.Store(2)
				e := start(t, outbox.Config{Store: store, Mode: mode, RetryPolicy: outbox.ExponentialBackoff(time.Hour, time.Hour)},
					func(context.Context, outbox.Envelope) error {
						return errors.New("boom")
					})
				e.write(said("e"))
				time.Sleep(time.Minute)
				row, _ := store.Row("e")
				require.Equal(t, outbox.StatusRetry, row.Status)
				require.Equal(t, 1, row.Attempts)
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}
