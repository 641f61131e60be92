package outbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// slowClaim is a store whose claim is carried out and not answered when Close begins.
type slowClaim struct {
	*outboxtest.Store
	claimed, proceed chan struct{}
}

func (s *slowClaim) memory() *outboxtest.Store { return s.Store }

func (s *slowClaim) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	b, err := s.Store.Claim(ctx, db, q)
	if b.Len() > 0 {
		s.claimed <- struct{}{}
		<-s.proceed
	}
	if ctx.Err() != nil { // as a driver does when the answer is too late
		return outbox.Batch{}, ctx.Err()
	}
	return b, err
}

func TestAClaimUnderWayWhenTheOutboxClosesIsNotLost(t *testing.T) {
	t.Parallel()
	store := &slowClaim{Store: outboxtest.NewStore(), claimed: make(chan struct{}), proceed: make(chan struct{})}
	build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil).write(said("claimed"))
	e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{TenantsInTurn: true}}},
		func(context.Context, outbox.Envelope) error { return nil })
	receive(t, store.claimed)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- e.Close(ended) }()
	<-time.After(5 * time.Millisecond) // Close has cancelled the poller
	close(store.proceed)
	require.NoError(t, receive(t, closed))
	row, _ := store.Row("claimed")
	require.Empty(t, row.LockedBy, "a claimed event is delivered or released")
}

// slowDeferral is a store that answers a deferral only when the row was claimed again.
type slowDeferral struct{ *outboxtest.Store }

func (s *slowDeferral) memory() *outboxtest.Store { return s.Store }

func (s *slowDeferral) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	left, err := s.Store.Mark(ctx, db, kind, marks)
	for kind == outbox.OutcomeDeferred && ctx.Err() == nil {
		if row, _ := s.Row(marks[0].EventID); row.LockedBy != "" {
			break
		}
		<-time.After(time.Millisecond)
	}
	return left, err
}

// When a deferral is stored, this node may claim the row again before it gets the
// answer. The claim is a new delivery, not a copy to drop.
func TestARowThatIsClaimedAgainAtOnceIsDelivered(t *testing.T) {
	t.Parallel()
	var c calls
	e := start(t, outbox.Config{Store: &slowDeferral{outboxtest.NewStore()}, Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Millisecond}, Claim: outbox.ClaimOptions{TenantsInTurn: true}}},
		func(_ context.Context, env outbox.Envelope) error {
			if c.add(env.EventID) == 1 {
				return outbox.Defer(0)
			}
			return nil
		})
	e.write(said("again"))
	e.await("again", outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"again": 2}, c.n)
}

// slowBurial is a store that answers the death of an event only when the event was replayed
// and claimed again.
type slowBurial struct{ *outboxtest.Store }

func (s *slowBurial) memory() *outboxtest.Store { return s.Store }

func (s *slowBurial) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	left, err := s.Store.Mark(ctx, db, kind, marks)
	if kind == outbox.OutcomeDead {
		_, _ = s.ReplayDead(ctx, db, []string{marks[0].EventID}, time.Now(), outbox.StatusNew)
		for row := (outboxtest.Row{}); row.LockedBy == "" && ctx.Err() == nil; row, _ = s.Row(marks[0].EventID) {
			<-time.After(time.Millisecond)
		}
	}
	return left, err
}

// An event dies and is replayed, and this node claims it before it hears that the event
// died. The claim is taken for a copy, so its lease is given back.
func TestAnEventThatIsReplayedAtOnceIsDelivered(t *testing.T) {
	t.Parallel()
	var c calls
	e := start(t, outbox.Config{Store: &slowBurial{outboxtest.NewStore()}, Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Millisecond}, Claim: outbox.ClaimOptions{TenantsInTurn: true}}},
		func(_ context.Context, env outbox.Envelope) error {
			if c.add(env.EventID) == 1 {
				return outbox.Dead(errors.New("no"))
			}
			return nil
		})
	e.write(said("again"))
	e.await("again", outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"again": 2}, c.n)
}

// writtenTwice is a store in whose INSERT a row of the same id appears and is claimed.
type writtenTwice struct {
	*outboxtest.Store
	appear  func()
	claimed chan struct{}
	once    sync.Once
}

func (s *writtenTwice) memory() *outboxtest.Store { return s.Store }

func (s *writtenTwice) Insert(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) error {
	s.appear()
	<-s.claimed
	return s.Store.Insert(ctx, tx, envs, lease, due)
}

func (s *writtenTwice) InsertOnce(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) ([]string, error) {
	s.appear()
	<-s.claimed
	return s.Store.InsertOnce(ctx, tx, envs, lease, due)
}

func (s *writtenTwice) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	b, err := s.Store.Claim(ctx, db, q)
	if b.Len() > 0 {
		s.once.Do(func() { close(s.claimed) })
	}
	return b, err
}

// An id that the caller chose is written again while its row waits to be claimed.
// The second write fails. The first one's event is delivered.
func TestARowThatIsClaimedWhileItsIDIsWrittenAgainIsDelivered(t *testing.T) {
	t.Parallel()
	store := &writtenTwice{Store: outboxtest.NewStore(), claimed: make(chan struct{})}
	var c calls
	e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Millisecond}, Claim: outbox.ClaimOptions{TenantsInTurn: true}}},
		func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return nil
		})
	first := build(t, outbox.Config{Store: store.Store, Mode: outbox.WriterOnly{}}, nil)
	// Only a claim of all rows has the row: a claim by tenants leaves out what this process has in hand.
	store.appear = func() { first.write(said("again")) }
	_, err := e.Writer().WriteScope(t.Context(), outboxtest.NewScope(store.DB()), []outbox.Envelope{said("again")})
	require.ErrorContains(t, err, "again")
	e.await("again", outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"again": 1}, c.n)
}
