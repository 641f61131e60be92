package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// unclaimable is a store whose claims fail, as when no answer to a COMMIT arrives.
type unclaimable struct {
	*outboxtest.Store
	claims atomic.Int64
}

func (s *unclaimable) memory() *outboxtest.Store { return s.Store }

func (s *unclaimable) Claim(context.Context, outbox.DB, outbox.ClaimQuery) (outbox.Batch, error) {
	s.claims.Add(1)
	return outbox.Batch{}, errors.New("no answer")
}

// A process that cannot lease rows keeps no range from a process that can, however often it polls.
func TestAProcessThatCannotLeaseRowsLeavesThemToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mode := func(owner string, interval time.Duration) outbox.Config {
			return outbox.Config{Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: interval}, Claim: outbox.ClaimOptions{Owner: owner}}}
		}
		store := outboxtest.NewStore()
		broken, works := mode("broken", 5*time.Millisecond), mode("works", 20*time.Millisecond)
		refusing := &unclaimable{Store: store}
		broken.Store, works.Store = refusing, store
		start(t, broken, func(context.Context, outbox.Envelope) error { return nil })
		var c calls
		e := start(t, works, func(_ context.Context, env outbox.Envelope) error { c.add(env.EventID); return nil })
		for i := range 30 {
			e.write(dueIn(fmt.Sprint("e-", i), time.Minute+time.Duration(i)*100*time.Millisecond))
		}
		time.Sleep(time.Minute + 6*time.Second)
		require.Len(t, c.all(), 30)
		require.NotZero(t, refusing.claims.Load())
		require.Less(t, refusing.claims.Load(), int64(40), "it leaves ranges alone for longer each time")
	})
}
