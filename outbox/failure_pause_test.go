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

// unansweredCalls is how many calls of a kind fail. A loop that does not pause would call for
// ever otherwise, while the time of the test stands still.
const unansweredCalls = 1000

// unanswering is a store whose reads fail. A claim is carried out all the same.
type unanswering struct {
	*outboxtest.Store
	reads, notified atomic.Int32
}

func (s *unanswering) memory() *outboxtest.Store { return s.Store }

var errUnread = errors.New("the answer cannot be read")

// fail counts a call that fails. After too many it waits.
func fail(ctx context.Context, calls *atomic.Int32) error {
	if calls.Add(1) > unansweredCalls {
		<-ctx.Done()
		return ctx.Err()
	}
	return errUnread
}

func (s *unanswering) Poll(ctx context.Context, _ outbox.DB, _ outbox.PollQuery) (outbox.Batch, error) {
	return outbox.Batch{}, fail(ctx, &s.reads)
}

func (s *unanswering) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	_, _ = s.Store.Claim(ctx, db, q)
	return outbox.Batch{}, fail(ctx, &s.reads)
}

func (s *unanswering) Reach(ctx context.Context, _ outbox.DB, _ outbox.PollQuery) (outbox.Reach, error) {
	return outbox.Reach{}, fail(ctx, &s.reads)
}

func (s *unanswering) ReadRuns(ctx context.Context, _ outbox.DB, _ outbox.RunQuery) (outbox.Runs, error) {
	return outbox.Runs{}, fail(ctx, &s.reads)
}

func (s *unanswering) ReadTenants(ctx context.Context, _ outbox.DB, _ outbox.TenantQuery) (outbox.Tenants, error) {
	return outbox.Tenants{}, fail(ctx, &s.reads)
}

// Notify implements outbox.Notifier.
func (s *unanswering) Notify(ctx context.Context, _ outbox.DB, _ string) error {
	return fail(ctx, &s.notified)
}

// Listen implements outbox.Notifier. It wakes the poller all the time.
func (s *unanswering) Listen(ctx context.Context, _ outbox.DB, _ string, wake func()) error {
	for ctx.Err() == nil {
		wake()
		time.Sleep(time.Millisecond)
	}
	return ctx.Err()
}

// Whatever wakes it, a loop that failed waits for its pause. These grow from 100 ms to one
// second, so there are 13 tries in ten seconds.
func TestAWakeUpDoesNotShortenThePauseAfterAFailure(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node":    outbox.SingleNode{},
		"multi node":     outbox.MultiNode{},
		"tenants":        outbox.MultiNode{Claim: outbox.ClaimOptions{TenantsInTurn: true}},
		"ordered":        outbox.Ordered{},
		"ordered by key": outbox.OrderedByKey{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &unanswering{Store: outboxtest.NewStore()}
				e := build(t, outbox.Config{Store: store, Mode: mode, Notifier: store}, handled)
				for range 20 {
					e.write(said(""))
				}
				store.notified.Store(0) // by the commits: the outbox was not started
				require.NoError(t, e.Start(t.Context()))
				for range 10_000 {
					e.Wake()
					time.Sleep(time.Millisecond)
				}
				require.LessOrEqual(t, store.reads.Load(), int32(14))
				require.GreaterOrEqual(t, store.reads.Load(), int32(10))
				require.LessOrEqual(t, store.notified.Load(), int32(16))
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}
