package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func storeFor(kind testdb.Kind, opts ...sqlstore.Option) *sqlstore.Store {
	switch kind {
	case testdb.Postgres:
		return sqlstore.Postgres(opts...)
	case testdb.MySQL:
		return sqlstore.MySQL(opts...)
	default:
		return sqlstore.SQLite(opts...)
	}
}

// detected is the store as Detect returns it, which distinguishes MySQL from MariaDB.
func detected(t testing.TB, db *testdb.DB, opts ...sqlstore.Option) *sqlstore.Store {
	t.Helper()
	store, err := sqlstore.Detect(t.Context(), db.DB, opts...)
	require.NoError(t, err)
	return store
}

// certify runs the conformance suite on a target, with further DSN parameters.
func certify(t *testing.T, target testdb.Target, opts ...testdb.Option) {
	t.Helper()
	certifyTables(t, suiteOptions, func(t testing.TB) *testdb.DB { return withTables(t, target, opts...) })
}

// withTables opens a database with the tables that the conformance suite needs.
func withTables(t testing.TB, target testdb.Target, opts ...testdb.Option) *testdb.DB {
	t.Helper()
	db := testdb.Open(t, target, opts...)
	require.NoError(t, detected(t, db, suiteOptions...).CreateSchema(t.Context(), db.DB))
	return db
}

// certifyTables runs the conformance suite on databases that open opens with their tables.
func certifyTables(t *testing.T, options []sqlstore.Option, open func(t testing.TB) *testdb.DB) {
	t.Helper()
	lend := testdb.Lend(t, open, testdb.EmptyTables)
	conformance.RunStore(t, func(t *testing.T) conformance.StoreHarness {
		db := lend(t)
		store := detected(t, db, options...)
		return conformance.SQLHarness(store, db.DB, conformance.Dialect(store.Dialect()))
	})
}

// suiteOptions are the options that the suite has rules for.
var suiteOptions = []sqlstore.Option{sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex(), sqlstore.WithSearchIndex(), sqlstore.WithUniqueIndex()}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Drivers() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			certify(t, target)
		})
	}
}

// The statements for a server without SKIP LOCKED, such as TiDB, on MySQL and MariaDB.
func TestConformanceWithoutSkipLocked(t *testing.T) {
	t.Parallel()
	target := testdb.Main()[1]
	require.Equal(t, testdb.MySQL, target.Kind)
	lend := testdb.Lend(t, func(t testing.TB) *testdb.DB { return withTables(t, target) }, testdb.EmptyTables)
	conformance.RunStore(t, func(t *testing.T) conformance.StoreHarness {
		db := lend(t)
		store := withoutSkipLocked(t, db)
		harness := conformance.SQLHarness(store, db.DB, conformance.MySQL)
		harness.LockRow = nil // it is for the rule that claims skip locked rows
		return harness
	})
}

// withoutSkipLocked is the store of a server that has no SKIP LOCKED.
func withoutSkipLocked(t testing.TB, db *testdb.DB) *sqlstore.Store {
	t.Helper()
	store, err := sqlstore.Detect(t.Context(), pretender{DB: db.DB, version: "8.0.11-TiDB-v7.5.0"}, suiteOptions...)
	require.NoError(t, err)
	return store
}

// Retries whose time is no time give a claim no place to go on behind.
func TestAClaimHasEachRowOnce(t *testing.T) {
	t.Parallel()
	target := testdb.Main()[1]
	for name, storeOf := range map[string]func(t testing.TB, db *testdb.DB) *sqlstore.Store{
		"SKIP LOCKED": func(t testing.TB, db *testdb.DB) *sqlstore.Store { return detected(t, db) }, "without": withoutSkipLocked,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := withTables(t, target)
			store := storeOf(t, db)
			insert(t, store, db, events("e", 8), "", time.Time{})
			db.SetMaxOpenConns(1)
			for _, statement := range []string{
				"SET SESSION sql_mode = ''", "UPDATE outbox_event SET status = 2, available_at = '0000-00-00'", "SET SESSION sql_mode = 'TRADITIONAL'",
			} {
				_, err := db.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			seen := map[string]bool{}
			for n := 0; len(seen) < 8; n++ {
				b, err := store.Claim(t.Context(), db.DB, outbox.ClaimQuery{Lease: fmt.Sprint("node-1/", n), Now: time.Now(), LeaseDuration: time.Hour, Limit: 4})
				require.NoError(t, err)
				require.NotEmpty(t, b.Undecodable)
				for _, row := range b.Undecodable {
					require.False(t, seen[row.EventID], "%s was claimed before", row.EventID)
					seen[row.EventID] = true
				}
			}
		})
	}
}

func TestDetectKnowsEachDatabase(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		s, err := sqlstore.Detect(t.Context(), db.DB, sqlstore.WithTable("found"))
		require.NoError(t, err)
		require.Equal(t, string(db.Kind), s.Dialect())
		require.Equal(t, "found", s.Table())
	})
}

// stranger is a database that answers as the test wants.
type stranger struct{ outbox.DB }

func (stranger) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errors.New("syntax error near version")
}

func TestDetectSaysWhatItCannotKnow(t *testing.T) {
	t.Parallel()
	_, err := sqlstore.Detect(t.Context(), stranger{})
	require.ErrorContains(t, err, "asking the database what it is")
	require.ErrorContains(t, err, "known are PostgreSQL, MySQL, MariaDB, TiDB and SQLite")
	_, err = sqlstore.Detect(t.Context(), nil)
	require.ErrorContains(t, err, "sqlstore.Detect db is nil")
	var none *sql.DB
	_, err = sqlstore.Detect(t.Context(), none)
	require.ErrorContains(t, err, "sqlstore.Detect db is nil")
}

func TestBadOptionsAreReportedEverywhere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", "1st", "a-b", "a b", "a;DROP TABLE x", `a"b`, "a.b.c", ".a", "a.", "é", "a`b", "a'b",
		strings.Repeat("x", 64), strings.Repeat("x", 64) + ".a",
	} {
		s := sqlstore.Postgres(sqlstore.WithTable(name))
		require.Error(t, s.Validate(), name)
		var field *outbox.FieldError
		require.ErrorAs(t, s.Validate(), &field)
		require.Equal(t, "sqlstore.WithTable", field.Field)
		ctx, env := t.Context(), outbox.Envelope{EventID: "e"}
		require.Error(t, s.Insert(ctx, nil, []outbox.Envelope{env}, "", time.Time{}))
		_, err := s.Poll(ctx, nil, outbox.PollQuery{Limit: 1})
		require.Error(t, err)
		_, err = s.Claim(ctx, nil, outbox.ClaimQuery{Limit: 1})
		require.Error(t, err)
		_, err = s.Mark(ctx, nil, outbox.OutcomeDone, []outbox.Mark{{EventID: "e"}})
		require.Error(t, err)
		require.Error(t, s.CreateSchema(ctx, nil))
		_, err = outbox.New(outbox.Config{DB: stranger{}, Store: s})
		require.ErrorContains(t, err, "Config.Store")
		require.ErrorContains(t, err, "sqlstore.WithTable")
	}
	require.Error(t, sqlstore.MySQL(sqlstore.WithCodec(nil)).Validate())
	require.NoError(t, sqlstore.SQLite(sqlstore.WithTable("main.outbox")).Validate())
	require.NoError(t, sqlstore.SQLite(sqlstore.WithTable(strings.Repeat("x", 63))).Validate())
}

func TestSchemaCanBeCreatedByManyAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store := storeFor(db.Kind, sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex())
		errs := make(chan error, 6)
		for range cap(errs) {
			go func() { errs <- store.CreateSchema(context.Background(), db.DB) }()
		}
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
	})
}

func TestSchemaOfLongAndQualifiedNames(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		long := strings.Repeat("long_name_", 6)
		for _, name := range []string{long + "a", long + "b", "MixedCase", "select"} {
			store := storeFor(db.Kind, sqlstore.WithTable(name))
			require.NoError(t, store.CreateSchema(t.Context(), db.DB), name)
			st, err := store.Stats(t.Context(), db.DB, someTime, nil)
			require.NoError(t, err)
			require.Zero(t, st)
		}
		if db.Kind == testdb.SQLite {
			store := storeFor(db.Kind, sqlstore.WithTable("main.qualified"), sqlstore.WithAgeIndex())
			require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		}
	})
}

func TestSchemaText(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"postgres", "mysql", "sqlite"} {
		text, err := sqlstore.Schema(dialect, "app.events")
		require.NoError(t, err)
		require.Contains(t, text, "events")
		require.NotContains(t, text, "outbox_event")
		for index, option := range map[string]sqlstore.Option{
			"events_age": sqlstore.WithAgeIndex(), "events_key": sqlstore.WithKeyIndex(), "events_tenant": sqlstore.WithTenantIndex(), "events_search": sqlstore.WithSearchIndex(),
		} {
			require.NotContains(t, text, index)
			with, err := sqlstore.Schema(dialect, "app.events", option)
			require.NoError(t, err)
			require.Contains(t, with, index)
			require.NotContains(t, with, "outbox_event")
			require.Equal(t, strings.Count(text, "idx_events_")+1, strings.Count(with, "idx_events_"))
		}
		for _, column := range []string{
			"event_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "payload", "headers", "status", "attempts",
			"available_at", "created_at", "done_at", "last_error", "locked_by", "locked_at",
		} {
			require.Contains(t, text, "\n  "+column+" ")
		}
	}
	for other, dialect := range map[string]string{"postgresql": "postgres", "mariadb": "mysql"} {
		text, err := sqlstore.Schema(other, "events")
		require.NoError(t, err)
		want, err := sqlstore.Schema(dialect, "events")
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
	_, err := sqlstore.Schema("oracle", "events")
	require.ErrorContains(t, err, `"oracle"; known are`)
	_, err = sqlstore.Schema("mysql", "a b")
	require.Error(t, err)
}

func TestErrorsSayWhatEventAndTable(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store := storeFor(db.Kind, sqlstore.WithTable("missing"))
		err := store.Insert(t.Context(), db.DB, []outbox.Envelope{{EventID: "e-7", EventType: "T", Payload: outbox.RawJSON("1"), OccurredAt: someTime, AvailableAt: someTime}}, "", time.Time{})
		require.ErrorContains(t, err, "inserting event e-7 on table missing")
		require.NotNil(t, errors.Unwrap(err))
	})
}

// PostgreSQL's jsonb rewrites texts; a column of type json keeps them.
func TestPostgresWorksWithAJSONColumn(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:1], func(t *testing.T, db *testdb.DB) {
		store := storeFor(db.Kind)
		ctx := t.Context()
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		_, err := db.ExecContext(ctx, "ALTER TABLE outbox_event ALTER payload TYPE JSON, ALTER headers TYPE JSON")
		require.NoError(t, err)
		const text = `{"b":1,  "a":1.50}`
		require.NoError(t, store.Insert(ctx, db.DB, []outbox.Envelope{{
			EventID: "e", EventType: "T", Payload: outbox.RawJSON(text), OccurredAt: someTime, AvailableAt: someTime, Headers: map[string]string{"k": "v"},
		}}, "", time.Time{}))
		b, err := store.Claim(ctx, db.DB, outbox.ClaimQuery{Now: someTime, Limit: 1, Lease: "me/1", LeaseDuration: 1})
		require.NoError(t, err)
		require.Equal(t, text, b.Envelopes[0].Payload.String())
		require.Equal(t, map[string]string{"k": "v"}, b.Envelopes[0].Headers)
	})
}

// insert adds rows in a transaction.
func insert(t testing.TB, store *sqlstore.Store, db *testdb.DB, envs []outbox.Envelope, lease string, due time.Time) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(t, store.Insert(t.Context(), tx, envs, lease, due))
	require.NoError(t, tx.Commit())
}

func TestAMissingEventIsNamedOnce(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[2])
	store := sqlstore.SQLite()
	require.NoError(t, store.CreateSchema(t.Context(), db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	require.NoError(t, err)
	defer func() { require.NoError(t, ob.Close(context.Background())) }()
	_, err = ob.DeadLetters().Get(t.Context(), "e-1")
	require.ErrorIs(t, err, outbox.ErrNotFound)
	require.EqualError(t, err, "outbox: reading dead letter e-1 on table main.outbox_event: outbox: not found")
	_, err = ob.FindEvent(t.Context(), "e-1")
	require.EqualError(t, err, "outbox: reading event e-1 on table main.outbox_event: outbox: not found")
}
