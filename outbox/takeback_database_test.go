package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// takingLog is what happened to the events of a test.
type takingLog struct {
	mu        sync.Mutex
	content   map[string]string // that each event has; of a cancelled event: ""
	delivered map[string][]string
	failed    map[string]int
	taken     outbox.TakenBack
}

func (l *takingLog) has(id, content string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.content[id] = content
}

// missing are the events that are neither cancelled nor delivered.
func (l *takingLog) missing() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, content := range l.content {
		if content != "" && len(l.delivered[id]) == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// Two processes deliver delayed and retried events, and events that are postponed and due at their
// write, while transactions cancel, reschedule and replace them, and some are rolled back. An event that
// a committed transaction cancelled is never delivered; each other event is delivered once, with the
// content that it has by then.
func TestTakingBackOnEveryDatabase(t *testing.T) {
	t.Parallel()
	for name, mode := range flowModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
				takeBackWhileDelivering(t, db, func(owner string) outbox.Mode {
					return mode(owner, outbox.DispatchOptions{Workers: 4}, outbox.PollOptions{Interval: 100 * time.Millisecond, BatchSize: 20})
				})
			})
		})
	}
}

func takeBackWhileDelivering(t *testing.T, db *testdb.DB, mode func(owner string) outbox.Mode) {
	const takers, events = 4, 100 // for each taker
	ctx := t.Context()
	store, err := sqlstore.Detect(ctx, db.DB)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	log := &takingLog{content: map[string]string{}, delivered: map[string][]string{}, failed: map[string]int{}}
	var nodes []*outbox.Outbox
	var adapters []*sqltx.Adapter
	for i := range 2 {
		pool := db.Reopen(t)
		ob, err := outbox.New(outbox.Config{DB: pool.DB, Store: store, Logger: quiet, Mode: mode(fmt.Sprint("node-", i))})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(log.listen))))
		require.NoError(t, ob.Start(ctx))
		closeAfter(t, ob)
		nodes, adapters = append(nodes, ob), append(adapters, adaptertest.Adapter(t, pool.DB, ob.Writer()))
	}
	var all sync.WaitGroup
	for taker := range takers {
		all.Go(func() {
			k := taking{log: log, a: adapters[taker%2], name: fmt.Sprint("taker-", taker)}
			for i := range events {
				if err := k.write(ctx, i); err != nil {
					t.Errorf("write: %v", err)
					return
				}
				for range 2 {
					if err := k.take(ctx); err != nil && !errors.Is(err, errBoom) {
						t.Logf("the transaction is rolled back: %v", err) // after a deadlock
					}
				}
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool { return len(log.missing()) == 0 }, 2*time.Minute, 20*time.Millisecond, "events are missing")
	for _, ob := range nodes {
		require.NoError(t, ob.Close(context.Background()))
	}
	t.Logf("%+v", log.taken)
	require.Positive(t, log.taken.Changed)
	left := 0
	for id, content := range log.content {
		if content == "" {
			require.Empty(t, log.delivered[id], "event %s was cancelled", id)
			continue
		}
		require.Equal(t, []string{content}, log.delivered[id], "event %s", id)
		left++
	}
	var rows, done int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*), SUM(CASE WHEN status = 1 THEN 1 ELSE 0 END) FROM outbox_event").Scan(&rows, &done))
	require.Equal(t, []int{left, left}, []int{rows, done})
}

var errBoom = errors.New("boom")

// listen fails the first delivery of an event whose id says so.
func (l *takingLog) listen(_ context.Context, env outbox.Envelope) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if env.Headers["fails"] != "" && l.failed[env.EventID] == 0 {
		l.failed[env.EventID]++
		return outbox.RetryIn(time.Duration(rand.IntN(300))*time.Millisecond, errBoom)
	}
	l.delivered[env.EventID] = append(l.delivered[env.EventID], env.Payload.String())
	return nil
}

// taking is a goroutine that writes events and takes its own events back.
type taking struct {
	log  *takingLog
	a    *sqltx.Adapter
	name string
	ids  []string // not known to be delivered or cancelled
	n    int
}

func (k *taking) write(ctx context.Context, i int) error {
	id := fmt.Sprintf("%s-%03d", k.name, i)
	env := outbox.Envelope{EventID: id, EventType: "Said", Payload: outbox.JSON(id)}
	switch i % 4 {
	case 0:
		env.DeliverAfter = time.Duration(1+rand.IntN(500)) * time.Millisecond
	case 1:
		env.Headers = map[string]string{"fails": "once"}
	case 2: // postponed and due
		env.OccurredAt, env.DeliverAfter = time.Now().Add(-time.Hour), time.Minute
	case 3: // postponed, due at about the commit, and fails
		env.DeliverAfter, env.Headers = time.Microsecond, map[string]string{"fails": "once"}
	}
	k.log.has(id, fmt.Sprintf("%q", id))
	k.ids = append(k.ids, id)
	return k.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		gone, changed := env, env // in this transaction
		gone.EventID, changed.EventID = id+"-gone", id+"-changed"
		if _, err := k.a.WriteAll(ctx, tx, []outbox.Envelope{gone, env, changed}); err != nil {
			return err
		}
		k.log.has(gone.EventID, "")
		k.log.has(changed.EventID, `"changed"`)
		n, err := k.a.Cancel(ctx, tx, outbox.Waiting{EventIDs: []string{gone.EventID}})
		if err != nil || n.Changed != 1 {
			return fmt.Errorf("cancel in the same transaction: %+v, %w", n, err)
		}
		n, err = k.a.Replace(ctx, tx, changed.EventID, outbox.Replacement{Payload: outbox.JSON("changed"), Headers: env.Headers})
		if err != nil || n.Changed != 1 {
			return fmt.Errorf("replace in the same transaction: %+v, %w", n, err)
		}
		return nil
	})
}

// take changes one of the last events, in a transaction that is rolled back or lasts a moment. What the
// event has by then is noted when the transaction has committed.
func (k *taking) take(ctx context.Context) error {
	if len(k.ids) == 0 {
		return nil
	}
	k.n++
	place := len(k.ids) - 1 - rand.IntN(min(len(k.ids), 10))
	id, what, content := k.ids[place], rand.IntN(3), fmt.Sprint("new-", k.n)
	var n outbox.TakenBack
	err := k.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) (err error) {
		which := outbox.Waiting{EventIDs: []string{id}}
		switch what {
		case 0:
			n, err = k.a.Cancel(ctx, tx, which)
		case 1:
			n, err = k.a.Reschedule(ctx, tx, which, time.Now().Add(time.Duration(rand.IntN(200)-50)*time.Millisecond))
		default:
			n, err = k.a.Replace(ctx, tx, id, outbox.Replacement{Payload: outbox.JSON(content), Headers: map[string]string{"fails": "once"}})
		}
		if err == nil && rand.IntN(3) == 0 {
			<-time.After(time.Duration(rand.IntN(30)) * time.Millisecond)
			return errBoom
		}
		return err
	})
	if err != nil || n.Changed == 0 {
		k.note(n, err)
		return err
	}
	switch what {
	case 0:
		k.log.has(id, "")
		k.ids = append(k.ids[:place], k.ids[place+1:]...)
	case 2:
		k.log.has(id, fmt.Sprintf("%q", content))
	}
	k.note(n, nil)
	return nil
}

func (k *taking) note(n outbox.TakenBack, err error) {
	k.log.mu.Lock()
	defer k.log.mu.Unlock()
	if err == nil {
		k.log.taken.Changed += n.Changed
		k.log.taken.InHand += n.InHand
		k.log.taken.Delivered += n.Delivered
	}
}
