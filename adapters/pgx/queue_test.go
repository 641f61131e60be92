package outboxpgx_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// queue is a batch with an event behind the statements.
func queue(t testing.TB, f fixture, statements ...string) *pgx.Batch {
	t.Helper()
	batch := &pgx.Batch{}
	for _, s := range statements {
		batch.Queue(s)
	}
	f.queue(t, batch)
	return batch
}

func (f fixture) queue(t testing.TB, batch *pgx.Batch) {
	t.Helper()
	id, err := f.a.Queue(t.Context(), batch, adaptertest.Event())
	require.NoError(t, err)
	require.NotEmpty(t, id)
}

// eachMode runs fn with each way in which pgx sends a batch.
func eachMode(t *testing.T, fn func(t *testing.T, f fixture)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			fn(t, newFixture(t, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode }))
		})
	}
}

func TestQueueInATransaction(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f fixture) {
		tx, err := f.pool.Begin(t.Context())
		require.NoError(t, err)
		batch := queue(t, f, "SELECT 1")
		f.queue(t, batch)
		require.NoError(t, tx.SendBatch(t.Context(), batch).Close())
		require.Empty(t, f.rec.Outcomes(), "not before the commit")
		require.NoError(t, tx.Commit(t.Context()))
		f.rec.EventuallyInAnyOrder(t, "commit", "commit")

		tx, err = f.pool.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, tx.SendBatch(t.Context(), queue(t, f)).Close())
		require.NoError(t, tx.Rollback(t.Context()))
		f.rec.EventuallyInAnyOrder(t, "commit", "commit", "rollback")
		f.written(t, 2)
	})
}

// PostgreSQL runs a batch without a transaction as one.
func TestQueueWithoutATransaction(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f fixture) {
		require.NoError(t, f.pool.SendBatch(t.Context(), queue(t, f, "SELECT 1")).Close())
		f.rec.EventuallyInAnyOrder(t, "commit")
		batch := queue(t, f, "SELECT 1")
		batch.Queue("SELECT 1/0")
		require.ErrorContains(t, f.pool.SendBatch(t.Context(), batch).Close(), "division by zero")
		f.rec.EventuallyInAnyOrder(t, "commit", "rollback")
		f.written(t, 1)
	})
}

func TestQueueInABatchThatBeginsAndEnds(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f fixture) {
		batch := queue(t, f, "BEGIN")
		batch.Queue("COMMIT")
		batch.Queue("BEGIN")
		f.queue(t, batch)
		batch.Queue("ROLLBACK")
		f.queue(t, batch) // by itself again
		require.NoError(t, f.pool.SendBatch(t.Context(), batch).Close())
		f.rec.EventuallyInAnyOrder(t, "commit", "rollback", "commit")
		f.written(t, 2)
	})
}

func TestQueueAmongSavepoints(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f fixture) {
		tx, err := f.pool.Begin(t.Context())
		require.NoError(t, err)
		batch := queue(t, f)
		batch.Queue("SAVEPOINT a")
		f.queue(t, batch)
		batch.Queue("ROLLBACK TO a")
		require.NoError(t, tx.SendBatch(t.Context(), batch).Close())
		f.rec.EventuallyInAnyOrder(t, "rollback")
		require.NoError(t, tx.Commit(t.Context()))
		f.rec.EventuallyInAnyOrder(t, "rollback", "commit")
		f.written(t, 1)
	})
}

func TestQueueInABatchThatFails(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f fixture) {
		// A statement in the transaction.
		tx, err := f.pool.Begin(t.Context())
		require.NoError(t, err)
		batch := queue(t, f)
		batch.Queue("SELECT 1/0")
		f.queue(t, batch)
		require.Error(t, tx.SendBatch(t.Context(), batch).Close())
		require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxCommitRollback)
		f.rec.EventuallyInAnyOrder(t, "rollback", "rollback")
		require.NotErrorIs(t, f.rec.LastCause(), outbox.ErrOutcomeUnknown)
		// The caller goes on behind a savepoint.
		tx, err = f.pool.Begin(t.Context())
		require.NoError(t, err)
		nested, err := tx.Begin(t.Context())
		require.NoError(t, err)
		require.Error(t, nested.SendBatch(t.Context(), queue(t, f, "SELECT 1/0")).Close())
		require.NoError(t, nested.Rollback(t.Context()))
		require.NoError(t, tx.Commit(t.Context()))
		f.rec.EventuallyInAnyOrder(t, "rollback", "rollback", "rollback")
		// COMMIT itself.
		f.exec(t, "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
			"CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
		batch = queue(t, f, "BEGIN", "INSERT INTO child VALUES (7)")
		batch.Queue("COMMIT")
		require.Error(t, f.pool.SendBatch(t.Context(), batch).Close())
		f.rec.EventuallyInAnyOrder(t, "rollback", "rollback", "rollback", "rollback")
		require.NotErrorIs(t, f.rec.LastCause(), outbox.ErrOutcomeUnknown)
		f.written(t, 0)
	})
}

// What the caller does not read may have happened: the poller finds out.
func TestQueueInABatchWhoseAnswersAreNotRead(t *testing.T) {
	t.Parallel()
	failure := errors.New("a callback")
	eachMode(t, func(t *testing.T, f fixture) {
		send := func(on interface {
			SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
		},
		) {
			batch := &pgx.Batch{}
			batch.Queue("SELECT 1").QueryRow(func(pgx.Row) error { return failure })
			f.queue(t, batch)
			require.ErrorIs(t, on.SendBatch(t.Context(), batch).Close(), failure)
		}
		tx, err := f.pool.Begin(t.Context())
		require.NoError(t, err)
		send(tx)
		require.NoError(t, tx.Commit(t.Context()))
		f.rec.EventuallyInAnyOrder(t, "unknown")
		f.written(t, 1)
		send(f.pool)
		f.rec.EventuallyInAnyOrder(t, "unknown", "unknown")
		f.written(t, 2)
	})
}

func TestQueueInABatchThatIsNotSent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx := f.begin(t)
	queue(t, f) // and forgotten
	batch := queue(t, f)
	batch.Queue("SELECT @missing", pgx.StrictNamedArgs{})
	require.Error(t, tx.SendBatch(t.Context(), batch).Close())
	require.NoError(t, tx.Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "commit", "unknown")
	f.written(t, 1)
}

func TestQueueReadByHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	batch := queue(t, f, "SELECT 1")
	f.queue(t, batch)
	results := tx.SendBatch(t.Context(), batch)
	rows, err := results.Query()
	require.NoError(t, err)
	rows.Close()
	tag, err := results.Exec()
	require.NoError(t, err)
	require.Equal(t, "INSERT 0 1", tag.String())
	require.NoError(t, results.Close())
	require.NoError(t, tx.Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "commit", "commit")
}

func TestReleaseWithAnOpenBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := f.pool.Acquire(t.Context())
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	f.write(t, tx)
	_ = tx.SendBatch(t.Context(), queue(t, f))
	conn.Release()
	f.rec.EventuallyInAnyOrder(t, "rollback", "rollback")
	f.written(t, 0)

	conn, err = f.pool.Acquire(t.Context())
	require.NoError(t, err)
	_ = conn.SendBatch(t.Context(), queue(t, f)) // it may commit by itself
	conn.Release()
	f.rec.EventuallyInAnyOrder(t, "rollback", "rollback", "unknown")
}

func TestQueueRefuses(t *testing.T) {
	t.Parallel()
	f, other := newFixture(t), newFixture(t)
	_, err := f.a.Queue(t.Context(), nil, adaptertest.Event())
	require.ErrorContains(t, err, "batch is nil")
	batch := &pgx.Batch{}
	_, err = f.a.Queue(t.Context(), batch, outbox.Envelope{})
	require.ErrorIs(t, err, outbox.ErrInvalidEnvelope)
	require.Zero(t, batch.Len())

	require.ErrorIs(t, other.pool.SendBatch(t.Context(), queue(t, f)).Close(), outbox.ErrForeignTransaction)
	plain := newPool(t, f.plain.DSN)
	require.ErrorIs(t, plain.SendBatch(t.Context(), queue(t, f)).Close(), outbox.ErrUnmanagedTransaction)
	require.Empty(t, f.rec.Outcomes())
	f.written(t, 0)
}

func TestQueueRunsTheHooks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var calls []string
	suppress := true
	ob, err := outbox.New(outbox.Config{DB: f.db, Store: adaptertest.Store("postgres"), Mode: outbox.WriterOnly{}, Hooks: []outbox.WriterHook{{
		BeforeWrite: func(_ context.Context, envs []outbox.Envelope) ([]outbox.Envelope, error) {
			calls = append(calls, "before")
			if suppress {
				return nil, nil
			}
			return envs, nil
		},
		AfterWrite: func(context.Context, []outbox.Envelope) { calls = append(calls, "after") },
	}}})
	require.NoError(t, err)
	writer := ob.Writer()
	a, err := outboxpgx.New(f.pool, writer)
	require.NoError(t, err)
	batch := &pgx.Batch{}
	id, err := a.Queue(t.Context(), batch, adaptertest.Event())
	require.NoError(t, err)
	require.Empty(t, id)
	require.Zero(t, batch.Len())
	suppress = false
	_, err = a.Queue(t.Context(), batch, adaptertest.Event())
	require.NoError(t, err)
	require.Equal(t, []string{"before", "before"}, calls)
	require.NoError(t, f.pool.SendBatch(t.Context(), batch).Close())
	require.Equal(t, []string{"before", "before", "after"}, calls)
}

// orders is an adapter on tables of the store, without deliveries.
func orders(t *testing.T, mode pgx.QueryExecMode) (*pgxpool.Pool, *outboxpgx.Adapter) {
	t.Helper()
	pool := followedPool(t, mode)
	db := closing(t, outboxpgx.DB(pool))
	store := sqlstore.Postgres(sqlstore.WithUniqueIndex())
	require.NoError(t, store.CreateSchema(t.Context(), db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	a, err := outboxpgx.New(pool, ob.Writer())
	require.NoError(t, err)
	return pool, a
}

func orderWith(id string) outbox.Envelope {
	env := order
	env.EventID = id
	return env
}

// An event whose id is there is an error of Close, and leaves the transaction as it was.
func TestQueueOfAnEventThatIsThere(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool, a := orders(t, mode)
			ids := func(want ...string) {
				t.Helper()
				rows, err := pool.Query(t.Context(), "SELECT event_id FROM outbox_event ORDER BY event_id")
				require.NoError(t, err)
				got, err := pgx.CollectRows(rows, pgx.RowTo[string])
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
			batchOf := func(ids ...string) *pgx.Batch {
				batch := &pgx.Batch{}
				for _, id := range ids {
					_, err := a.Queue(t.Context(), batch, orderWith(id))
					require.NoError(t, err)
				}
				return batch
			}
			require.NoError(t, pool.SendBatch(t.Context(), batchOf("a")).Close())

			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			err = tx.SendBatch(t.Context(), batchOf("b", "a", "c")).Close()
			require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
			var there *outbox.DuplicateEventError
			require.ErrorAs(t, err, &there)
			require.Equal(t, "a", there.EventID)
			_, err = a.Write(t.Context(), tx, orderWith("d"))
			require.NoError(t, err)
			require.NoError(t, tx.Commit(t.Context()))
			ids("a", "b", "c", "d")

			// Who reads the answers sees that the INSERT has no row.
			tx, err = pool.Begin(t.Context())
			require.NoError(t, err)
			results := tx.SendBatch(t.Context(), batchOf("a", "e"))
			for _, want := range []int64{0, 1} {
				tag, err := results.Exec()
				require.NoError(t, err)
				require.Equal(t, want, tag.RowsAffected())
			}
			require.NoError(t, results.Close())
			require.NoError(t, tx.Commit(t.Context()))
			ids("a", "b", "c", "d", "e")

			// Without a transaction the other statements of the batch commit.
			require.ErrorIs(t, pool.SendBatch(t.Context(), batchOf("f", "a", "g")).Close(), outbox.ErrDuplicateEvent)
			ids("a", "b", "c", "d", "e", "f", "g")

			// Unread, as after another error.
			tx, err = pool.Begin(t.Context())
			require.NoError(t, err)
			batch := &pgx.Batch{}
			batch.Queue("SELECT 1").QueryRow(func(pgx.Row) error { return errors.New("a callback") })
			_, err = a.Queue(t.Context(), batch, orderWith("a"))
			require.NoError(t, err)
			require.Error(t, tx.SendBatch(t.Context(), batch).Close())
			require.NoError(t, tx.Commit(t.Context()))
			ids("a", "b", "c", "d", "e", "f", "g")
		})
	}
}

// The hot path must not deliver an event that is not there, and the poller delivers the events whose
// answers Close did not read.
func TestQueueOfAnEventThatIsThereDeliversTheOthers(t *testing.T) {
	t.Parallel()
	pool := followedPool(t, pgx.QueryExecModeCacheStatement)
	ob, a, arrived := delivering(t, pool, outbox.SingleNode{Poll: outbox.PollOptions{Interval: 10 * time.Millisecond}})
	send := func(ids ...string) error {
		batch := &pgx.Batch{}
		for _, id := range ids {
			_, err := a.Queue(t.Context(), batch, orderWith(id))
			require.NoError(t, err)
		}
		return pool.SendBatch(t.Context(), batch).Close()
	}
	require.NoError(t, send("a"))
	arrives(t, arrived, "a")
	require.ErrorIs(t, send("b", "a", "c"), outbox.ErrDuplicateEvent)
	require.ErrorIs(t, send("a"), outbox.ErrDuplicateEvent)
	got := map[string]int{}
	for range 2 {
		select {
		case id := <-arrived:
			got[id]++
		case <-time.After(20 * time.Second):
			t.Fatal("an event did not arrive")
		}
	}
	require.Equal(t, map[string]int{"b": 1, "c": 1}, got)
	require.NoError(t, ob.Close(t.Context()))
	require.Empty(t, arrived)
}

// Queue returns the id before the database has told whose event is pending.
func TestQueueRefusesAUniqueKey(t *testing.T) {
	t.Parallel()
	_, a := orders(t, pgx.QueryExecModeCacheStatement)
	env := orderWith("")
	env.UniqueKey = "k"
	_, err := a.Queue(t.Context(), &pgx.Batch{}, env)
	require.ErrorIs(t, err, outbox.ErrInvalidEnvelope)
	require.ErrorContains(t, err, "write the event with Write or WriteAll")
}

// A write reads in pgx's transaction.
func TestWriteOfAnEventWhoseKeyIsTaken(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool, a := orders(t, mode)
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			first, second := orderWith("first"), orderWith("second")
			first.UniqueKey, second.UniqueKey = "k", "k"
			for _, env := range []outbox.Envelope{first, second} {
				id, err := a.Write(t.Context(), tx, env)
				require.NoError(t, err)
				require.Equal(t, "first", id)
			}
			_, err = a.WriteAll(t.Context(), tx, []outbox.Envelope{orderWith("other"), first})
			require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
			ids, err := a.WriteAll(t.Context(), tx, []outbox.Envelope{orderWith("other"), second})
			require.NoError(t, err)
			require.Equal(t, []string{"other", "first"}, ids)
			require.NoError(t, tx.Commit(t.Context()))
		})
	}
}
