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

// limitedToOne has one worker for "Said" and a poller that looks when it is woken.
func limitedToOne(poll outbox.PollOptions) outbox.SingleNode {
	poll.Interval = time.Hour
	return outbox.SingleNode{Dispatch: outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{kindSaid: {Concurrency: 1}}}, Poll: poll}
}

// The lane makes the poller read when it has room: nothing else would.
func TestALaneThatHasRoomIsFilledAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got arrivals
		e := start(t, outbox.Config{Mode: limitedToOne(outbox.PollOptions{})}, func(_ context.Context, env outbox.Envelope) error {
			got.add(env.EventID)
			time.Sleep(time.Second)
			return nil
		})
		ids := several(e, 100, "e", "Said")
		pass(99*time.Second + 500*time.Millisecond)
		require.ElementsMatch(t, ids, got.all(), "without a gap")
		// The poller may read a part of what the hot path is handing over at the same time.
		const early = 40
		require.Equal(t, ids[early:], got.all()[early:], "the oldest first")
	})
}

// ponders is a store that takes long to read the table and the pauses.
type ponders struct{ *outboxtest.Store }

func (s *ponders) memory() *outboxtest.Store { return s.Store }

func (s *ponders) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	b, err := s.Store.Poll(ctx, db, q)
	time.Sleep(time.Second)
	return b, err
}

func (s *ponders) Paused(ctx context.Context, db outbox.DB) ([]outbox.Pause, error) {
	time.Sleep(time.Second)
	return s.Store.Paused(ctx, db)
}

// A lane refuses events in the middle of a batch, and has room again when the poller
// looks for the next batch, which begins behind them. They are read again all the same,
// although passes over the table begin at recent rows while another kind is paused.
func TestWhatALaneRefusedIsReadAgainWhenItHasRoomMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got arrivals
		s := &ponders{outboxtest.NewStore()}
		for i, id := range named("e", 40) {
			insertDue(t, s.Store, id, time.Duration(i-100)*time.Second)
		}
		require.NoError(t, s.Pause(t.Context(), nil, outbox.Pause{Kind: outbox.EventKind{AggregateType: outbox.Global, EventType: "Other"}}))
		start(t, outbox.Config{Store: s, Mode: limitedToOne(outbox.PollOptions{BatchSize: 20})}, func(_ context.Context, env outbox.Envelope) error {
			got.add(env.EventID)
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		pass(time.Minute)
		require.ElementsMatch(t, named("e", 40), got.all())
	})
}
