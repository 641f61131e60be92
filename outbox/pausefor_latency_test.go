package outbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// latent is a store that answers slowly.
type latent struct {
	*outboxtest.Store
	now, pause time.Duration
	pausing    atomic.Bool
}

func (s *latent) memory() *outboxtest.Store { return s.Store }

func (s *latent) Now(ctx context.Context, db outbox.DB) (time.Time, error) {
	t, err := s.Store.Now(ctx, db)
	time.Sleep(s.now)
	return t, err
}

func (s *latent) Pause(ctx context.Context, db outbox.DB, p outbox.Pause) error {
	s.pausing.Store(true)
	time.Sleep(s.pause)
	return s.Store.Pause(ctx, db, p)
}

// Resume ends a pause that a listener asked for, also while this process stores it.
func TestResumeWhileThePauseIsBeingStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &latent{Store: outboxtest.NewStore(), pause: 300 * time.Millisecond}
		r := &receiver{pauses: time.Hour}
		e := start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{}}, r.hear)
		e.write(said("a"))
		for !store.pausing.Load() {
			pass(time.Millisecond)
		}
		r.up.Store(true)
		require.NoError(t, e.Resume(t.Context(), kindSaid))
		pass(time.Minute)
		require.Equal(t, []string{"a"}, r.arrived.all())
		require.NoError(t, e.Close(context.Background()))
	})
}

// The table's clock is read with a delay, so this process knows the end of a pause too late. The first
// delivery after the end is a probe all the same.
func TestASlowDatabaseDoesNotSpareTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &latent{Store: outboxtest.NewStore(), now: 100 * time.Millisecond}
		r := &receiver{pauses: time.Minute}
		e := build(t, outbox.Config{Store: store, Mode: outbox.SingleNode{}}, r.hear)
		require.NoError(t, e.Register(outbox.On("", "Other", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}))))
		require.NoError(t, e.Start(t.Context()))
		several(e, 50, "a", "Said")
		pass(10 * time.Second)
		most := 0
		r.calledSince()
		for i := range 3000 { // others keep the poller busy
			env := said(fmt.Sprint("other", i))
			env.EventType = "Other"
			e.write(env)
			e.Wake()
			pass(100 * time.Millisecond)
			most = max(most, r.calledSince())
		}
		require.LessOrEqual(t, most, 1)
		require.NoError(t, e.Close(context.Background()))
	})
}
