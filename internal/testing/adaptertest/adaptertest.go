// Package adaptertest holds the parts that the adapters' tests share: a writer whose events are ids
// in a table, and a record of the calls of the writer's hooks.
package adaptertest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// Event is a valid event.
func Event() outbox.Envelope {
	return outbox.Envelope{EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "1", Payload: outbox.JSON(map[string]int{"n": 1})}
}

// Store inserts ids into the table written. The other methods panic.
func Store(dialect string) outbox.Store { return store{dialect: dialect} }

type store struct {
	outbox.Store
	dialect string
}

func (s store) Dialect() string { return s.dialect }

func (s store) Insert(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, _ string, _ time.Time) error {
	query := "INSERT INTO written (id) VALUES (?)"
	if s.dialect == "postgres" {
		query = "INSERT INTO written (id) VALUES ($1)"
	}
	for i := range envs {
		if _, err := tx.ExecContext(ctx, query, envs[i].EventID); err != nil {
			return err
		}
	}
	return nil
}

func (s store) InsertOnce(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) ([]string, error) {
	ids := make([]string, len(envs))
	for i := range envs {
		ids[i] = envs[i].EventID
	}
	return ids, s.Insert(ctx, tx, envs, lease, due)
}

// Writer creates the table and a writer for the table that reports to the record.
func Writer(t testing.TB, db *sql.DB, dialect string) (*outbox.Writer, *Record) {
	t.Helper()
	Exec(t, db, "CREATE TABLE written (id VARCHAR(64) NOT NULL PRIMARY KEY)")
	return WriterWithoutTable(t, db, dialect)
}

// WriterWithoutTable is [Writer] without creating the table.
func WriterWithoutTable(t testing.TB, db *sql.DB, dialect string) (*outbox.Writer, *Record) {
	t.Helper()
	r := &Record{}
	ob, err := outbox.New(outbox.Config{DB: db, Store: Store(dialect), Mode: outbox.WriterOnly{}, Hooks: []outbox.WriterHook{{
		AfterCommit:   func(context.Context, []outbox.Envelope) { r.add("commit", nil) },
		AfterRollback: func(_ context.Context, _ []outbox.Envelope, cause error) { r.add(outcome(cause), cause) },
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return ob.Writer(), r
}

func outcome(cause error) string {
	if errors.Is(cause, outbox.ErrOutcomeUnknown) {
		return "unknown"
	}
	return "rollback"
}

// Exec runs statements outside of any transaction of the test.
func Exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// Written is how many events are in the table.
func Written(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM written").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Record holds the calls of the writer's hooks, in order: "commit", "rollback" or
// "unknown".
type Record struct {
	mu       sync.Mutex
	outcomes []string
	causes   []error
}

func (r *Record) add(outcome string, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes = append(r.outcomes, outcome)
	r.causes = append(r.causes, cause)
}

// Outcomes returns the calls so far.
func (r *Record) Outcomes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.outcomes)
}

// Eventually waits for the calls: if the adapter does not end a transaction, the calls run soon
// after the end of the transaction.
func (r *Record) Eventually(t testing.TB, want ...string) {
	t.Helper()
	r.wait(t, len(want))
	require.Equal(t, want, r.Outcomes())
}

// EventuallyInAnyOrder is Eventually for the calls of several transactions.
func (r *Record) EventuallyInAnyOrder(t testing.TB, want ...string) {
	t.Helper()
	r.wait(t, len(want))
	require.ElementsMatch(t, want, r.Outcomes())
}

func (r *Record) wait(t testing.TB, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(r.Outcomes()) >= n }, 20*time.Second, time.Millisecond)
}

// Reset forgets the calls.
func (r *Record) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes, r.causes = nil, nil
}

// LastCause is the cause that the last after-rollback hook got.
func (r *Record) LastCause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.causes[len(r.causes)-1]
}
