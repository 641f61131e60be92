package doctor_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/doctor"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// ward is a database with an outbox table.
type ward struct {
	*testdb.DB
	store *sqlstore.Store
	// cfg is what is examined. The limits of what other tests do on the server are wide.
	cfg doctor.Config
	// again opens the pool that is examined again.
	again func(t *testing.T) *sql.DB
}

func admit(t *testing.T, db *testdb.DB, options ...sqlstore.Option) *ward {
	t.Helper()
	store, err := sqlstore.Detect(t.Context(), db.DB, options...)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	w := &ward{DB: db, store: store}
	w.again = func(t *testing.T) *sql.DB { return db.Reopen(t).DB }
	w.over(t, db.DB)
	return w
}

// over examines through another pool.
func (w *ward) over(t *testing.T, pool *sql.DB) {
	t.Helper()
	ob, err := outbox.New(outbox.Config{DB: pool, Store: w.store})
	require.NoError(t, err)
	w.cfg = doctor.Config{DB: pool, Store: w.store, Outbox: ob, Limits: doctor.Limits{
		Transaction: 24 * time.Hour, FreeConnections: 2, ClockDifference: 5 * time.Second, NotDurable: true,
	}}
}

func (w *ward) run(t *testing.T, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := w.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
}

func (w *ward) examine(t *testing.T) []doctor.Finding {
	t.Helper()
	findings, err := doctor.Examine(t.Context(), w.cfg)
	require.NoError(t, err)
	return findings
}

// of are the findings of one check.
func of(findings []doctor.Finding, check string) (list []doctor.Finding) {
	for _, f := range findings {
		if f.Check == check {
			list = append(list, f)
		}
	}
	return list
}

// requireFinding returns the finding of a check at a level that contains a text.
func (w *ward) requireFinding(t *testing.T, check string, level doctor.Level, text string) doctor.Finding {
	t.Helper()
	findings := w.examine(t)
	for _, f := range of(findings, check) {
		if f.Level == level && contains(f.Seen, text) {
			require.NotEmpty(t, f.WayOut, "a finding says the way out")
			return f
		}
	}
	require.Failf(t, "no such finding", "%s %s %q in %v", check, level, text, findings)
	return doctor.Finding{}
}

func contains(s, text string) bool { return strings.Contains(s, text) }

// insert writes an event that has been due for a time, under a lease unless that is empty.
func (w *ward) insert(t *testing.T, id, lease string, due time.Duration) {
	t.Helper()
	at := time.Now().UTC().Add(-due).Truncate(time.Microsecond)
	tx, err := w.cfg.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, w.store.Insert(t.Context(), tx, []outbox.Envelope{{
		EventID: id, EventType: "T", AggregateType: "A", Payload: outbox.RawJSON([]byte("{}")), OccurredAt: at, AvailableAt: at,
	}}, lease, at))
	require.NoError(t, tx.Commit())
}

func (w *ward) announce(t *testing.T, owner, mode string, d time.Duration) {
	t.Helper()
	now := time.Now().UTC()
	require.NoError(t, w.store.Announce(t.Context(), w.DB, outbox.Node{Owner: owner, Mode: mode, Started: now, LastPoll: now}, d))
}

func TestAHealthyOutboxHasNoFinding(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		w.announce(t, "node", "multi-node", time.Minute)
		w.insert(t, "e1", "", 0)
		findings := w.examine(t)
		checked := map[string]bool{}
		for _, f := range findings {
			checked[f.Check] = true
			if f.Check == "vacuum" && isAutovacuumOff(t, w) {
				continue // the server's own setting
			}
			require.Equal(t, doctor.OK, f.Level, "%+v", f)
			require.Empty(t, f.WayOut, "%+v", f)
		}
		all := map[testdb.Kind]int{testdb.Postgres: 17, testdb.MySQL: 17, testdb.SQLite: 10}[db.Kind]
		require.Len(t, checked, all, "%v", findings)
	})
}

func isAutovacuumOff(t *testing.T, w *ward) bool {
	t.Helper()
	if w.Kind != testdb.Postgres {
		return false
	}
	var on string
	require.NoError(t, w.QueryRowContext(t.Context(), "SHOW autovacuum").Scan(&on))
	return on == "off"
}

func TestATableThatIsMissingEndsTheExamination(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		w.run(t, "DROP TABLE outbox_event")
		f := w.requireFinding(t, "table", doctor.Failure, "outbox_event")
		require.Contains(t, f.WayOut, "outbox schema create")
		require.Len(t, w.examine(t), 2, "the server and the table")
	})
}

func TestAColumnThatIsMissingIsAFailure(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		w.run(t, "ALTER TABLE outbox_event DROP COLUMN last_error")
		w.requireFinding(t, "table", doctor.Failure, "last_error")
	})
}

func TestATableOfAnotherVersionIsAFailure(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		_, err := w.store.Migrate(t.Context(), w.DB, 1)
		require.NoError(t, err)
		w.requireFinding(t, "table", doctor.Failure, "version 1")
	})
}

func TestMissingIndexesAreFoundAndTheWayOutCreatesThem(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		drop := "DROP INDEX idx_outbox_event_%s"
		if db.Kind == testdb.MySQL {
			drop += " ON outbox_event"
		}
		w.run(t, fmt.Sprintf(drop, "due"), fmt.Sprintf(drop, "done"))
		require.Empty(t, of(w.examine(t), "plans"), "a missing index is reported once")
		w.run(t, w.requireFinding(t, "indexes", doctor.Failure, "idx_outbox_event_due is missing").WayOut)
		w.run(t, w.requireFinding(t, "indexes", doctor.Warning, "idx_outbox_event_done is missing").WayOut)
		findings := w.examine(t)
		require.Equal(t, doctor.OK, doctor.Worst(of(findings, "indexes")), "%v", findings)
		require.Equal(t, doctor.OK, doctor.Worst(of(findings, "plans")), "%v", findings)
	})
}

func TestIndexesThatTheSchemaDoesNotHaveAreNoted(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db, sqlstore.WithKeyIndex())
		w.run(t, "CREATE INDEX mine ON outbox_event (tenant_id)", "CREATE INDEX idx_outbox_event_old ON outbox_event (status, done_at)")
		w.run(t, w.requireFinding(t, "indexes", doctor.Warning, "idx_outbox_event_old").WayOut)
		w.requireFinding(t, "indexes", doctor.Note, "the index mine is not of this schema")
		if db.Kind == testdb.Postgres {
			w.requireFinding(t, "indexes", doctor.Note, "idx_outbox_event_key is for OrderedByKey, and nothing has used it")
		}
	})
}

func TestTheStatementThatDropsAnIndexWorks(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		name, unique := `"MyIx"`, "ALTER TABLE outbox_event ADD CONSTRAINT my_key UNIQUE (event_id, tenant_id, status)"
		if db.Kind == testdb.MySQL {
			name = "`My``Ix`"
		}
		if db.Kind == testdb.SQLite { // it adds no constraint to a table
			unique = "CREATE UNIQUE INDEX my_key ON outbox_event (event_id, tenant_id, status)"
		}
		w.run(t, "CREATE INDEX "+name+" ON outbox_event (tenant_id)", unique)
		for _, index := range []string{"Ix", "my_key"} {
			_, drop, found := strings.Cut(w.requireFinding(t, "indexes", doctor.Note, index).WayOut, "reads it: ")
			require.True(t, found)
			w.run(t, drop)
		}
		require.Equal(t, doctor.OK, doctor.Worst(of(w.examine(t), "indexes")))
	})
}

func TestAnInvalidIndexIsAFailure(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[0]))
	w.run(t, "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'idx_outbox_event_due'::regclass")
	f := w.requireFinding(t, "indexes", doctor.Failure, "idx_outbox_event_due is not valid")
	require.Contains(t, f.WayOut, "DROP INDEX")
	require.Empty(t, missingIndexes(w.examine(t)), "it is there, so that creating it would fail")
}

func missingIndexes(findings []doctor.Finding) (list []string) {
	for _, f := range of(findings, "indexes") {
		if contains(f.Seen, "is missing") {
			list = append(list, f.Seen)
		}
	}
	return list
}

func TestALargeTableThatIsNotAnalyzedGetsAWarning(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[0]))
	w.insert(t, "e1", "", time.Hour)
	w.run(t, "ANALYZE outbox_event")
	w.cfg.Limits.Rows = 1 // one row is rightly read without an index
	f := w.requireFinding(t, "plans", doctor.Warning, "does not use")
	require.Contains(t, f.WayOut, "ANALYZE")
}

func TestExaminingChangesNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		w := admit(t, db)
		w.insert(t, "doctor", "", time.Hour) // the id that the plan of a mark names
		w.examine(t)
		row, err := w.cfg.Outbox.FindEvent(t.Context(), "doctor")
		require.NoError(t, err)
		require.Equal(t, outbox.StatusNew, row.Status)
		require.Empty(t, row.Lease)
	})
}

func TestExaminingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[0]))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := doctor.Examine(ctx, w.cfg)
	require.ErrorIs(t, err, context.Canceled)
}
