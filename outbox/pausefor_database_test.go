package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Two processes deliver to a receiver that is down at first. A listener pauses the kind; then an
// operator pauses it until a time. Both pauses end by themselves, and no event has an attempt.
func TestPausesEndOnDatabases(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(owner string, poll outbox.PollOptions) outbox.Mode{
		"multi": func(owner string, poll outbox.PollOptions) outbox.Mode {
			return outbox.MultiNode{Poll: poll, Claim: outbox.ClaimOptions{Owner: owner}}
		},
		"by key": func(owner string, poll outbox.PollOptions) outbox.Mode {
			return outbox.OrderedByKey{Poll: poll, Claim: outbox.ClaimOptions{Owner: owner}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) { runPauses(t, db, mode) })
		})
	}
}

func runPauses(t *testing.T, db *testdb.DB, mode func(string, outbox.PollOptions) outbox.Mode) {
	ctx := t.Context()
	store, err := sqlstore.Detect(ctx, db.DB, sqlstore.WithKeyIndex())
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	kind := outbox.EventKind{AggregateType: "Order", EventType: "Paid"}
	var up atomic.Bool
	var delivered calls
	var nodes []*outbox.Outbox
	pools := []*sql.DB{db.DB, db.Reopen(t).DB}
	for i, pool := range pools {
		ob, err := outbox.New(outbox.Config{DB: pool, Store: store, Logger: quiet, Mode: mode(fmt.Sprint("node-", i), outbox.PollOptions{Interval: 50 * time.Millisecond})})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On(kind.AggregateType, kind.EventType, outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			if !up.Load() {
				return outbox.PauseFor(2*time.Second, errors.New("receiver down"))
			}
			delivered.add(env.EventID)
			return nil
		}))))
		require.NoError(t, ob.Start(ctx))
		closeAfter(t, ob)
		nodes = append(nodes, ob)
	}
	a := adaptertest.Adapter(t, db.DB, nodes[0].Writer())
	write := func() {
		for i := range 30 {
			require.NoError(t, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := a.Write(ctx, tx, outbox.Envelope{AggregateType: kind.AggregateType, AggregateID: fmt.Sprint(i % 5), EventType: kind.EventType, Payload: outbox.JSON(i)})
				return err
			}))
		}
	}
	eventually := func(what string, condition func() bool) {
		t.Helper()
		require.Eventually(t, condition, 60*time.Second, 5*time.Millisecond, what)
	}
	write()
	eventually("the other process sees the pause of a listener", func() bool {
		list, err := nodes[1].Paused(ctx)
		return err == nil && len(list) == 1 && list[0].Automatic && list[0].Reason == "receiver down" && !list[0].Until.IsZero()
	})
	first, err := nodes[0].Paused(ctx)
	require.NoError(t, err)
	eventually("a probe pauses the kind again", func() bool {
		list, err := nodes[0].Paused(ctx)
		return err == nil && len(list) == 1 && (len(first) == 0 || list[0].Until.After(first[0].Until))
	})
	up.Store(true)
	count := func() (done, others, attempts int) {
		row := db.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM outbox_event WHERE status = 1), (SELECT COUNT(*) FROM outbox_event WHERE status <> 1), (SELECT COALESCE(SUM(attempts), 0) FROM outbox_event)")
		if row.Scan(&done, &others, &attempts) != nil {
			return 0, 1, 0
		}
		return done, others, attempts
	}
	allDone := func() bool { done, others, _ := count(); return done > 0 && others == 0 }
	eventually("the pause of the listener ends", allDone)

	now, err := store.Now(ctx, db.DB)
	require.NoError(t, err)
	require.NoError(t, nodes[0].Pause(ctx, outbox.Pause{Kind: kind, Until: now.Add(3 * time.Second), Reason: "Wartung", By: "ann"}))
	list, err := nodes[1].Paused(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.True(t, list[0].Until.Equal(now.Add(3*time.Second)))
	require.Equal(t, "ann", list[0].By)
	write()
	eventually("the pause of the operator ends", allDone)
	for _, ob := range nodes {
		require.NoError(t, ob.Close(context.Background()))
	}
	done, _, attempts := count()
	require.Equal(t, 60, done)
	require.Zero(t, attempts)
	events, deliveries := delivered.total()
	require.Equal(t, 60, events)
	require.Equal(t, 60, deliveries, "an event was delivered twice")
}
