package txscope_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// answer is an Execer that returns the error and counts.
type answer struct {
	err error
	ran int
}

func (a *answer) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	a.ran++
	return nil, a.err
}

// recorded makes a scope with one event registered.
func recorded(t *testing.T, dialect string) (*txscope.Scope, *answer, *[]string) {
	t.Helper()
	execer, log := &answer{}, &[]string{}
	s := txscope.New(txscope.Config{Source: execer, Execer: execer, Dialect: dialect})
	require.NoError(t, s.AfterCommit(func(context.Context) { *log = append(*log, "commit") }))
	require.NoError(t, s.AfterRollback(func(_ context.Context, cause error) {
		what := "rollback"
		if errors.Is(cause, outbox.ErrOutcomeUnknown) {
			what = "unknown"
		}
		*log = append(*log, what)
	}))
	require.True(t, s.Active())
	require.True(t, s.Held())
	return s, execer, log
}

func TestObserve(t *testing.T) {
	t.Parallel()
	deadlock := &mysql.MySQLError{Number: 1213}
	for name, tt := range map[string]struct {
		dialect string
		query   string
		err     error
		want    string // what a Finish with Committed then runs
		refuses bool
	}{
		"ordinary":                   {txscope.MySQL, "INSERT INTO t VALUES (1)", nil, "commit", false},
		"ordinary failure":           {txscope.MySQL, "INSERT INTO t VALUES (1)", errors.New("no"), "commit", false},
		"deadlock":                   {txscope.MySQL, "UPDATE t SET a = 1", deadlock, "rollback", true},
		"ddl":                        {txscope.MySQL, "ALTER TABLE t ADD a INT", nil, "unknown", true},
		"failed ddl":                 {txscope.MySQL, "ALTER TABLE t ADD a INT", errors.New("no"), "unknown", true},
		"begin":                      {txscope.MySQL, "BEGIN", nil, "unknown", true},
		"ddl on postgres":            {txscope.Postgres, "ALTER TABLE t ADD a INT", nil, "commit", false},
		"ddl on sqlite":              {txscope.SQLite, "DROP TABLE t", nil, "commit", false},
		"raw commit":                 {txscope.Postgres, "COMMIT", nil, "unknown", true},
		"refused raw commit":         {txscope.Postgres, "COMMIT", &pgconn.PgError{Code: "23503"}, "commit", false},
		"prepared":                   {txscope.Postgres, "PREPARE TRANSACTION 'x'", nil, "unknown", true},
		"unanswered preparing":       {txscope.Postgres, "PREPARE TRANSACTION 'x'", context.Canceled, "unknown", true},
		"refused XA":                 {txscope.MySQL, "XA START 'x'", mysqlError(1400), "commit", false},
		"raw rollback":               {txscope.Postgres, "ROLLBACK", nil, "rollback", true},
		"rollback to unseen":         {txscope.Postgres, "ROLLBACK TO x", nil, "unknown", false},
		"refused rollback to":        {txscope.Postgres, "ROLLBACK TO x", &pgconn.PgError{Code: "3B001"}, "commit", false},
		"unanswered rollback to":     {txscope.Postgres, "ROLLBACK TO x", context.Canceled, "unknown", false},
		"several statements":         {txscope.Postgres, "SAVEPOINT a; RELEASE a; ROLLBACK TO a", nil, "unknown", false},
		"text that looks like it":    {txscope.Postgres, "SELECT 'ROLLBACK TO x'", nil, "commit", false},
		"release of an unseen":       {txscope.Postgres, "RELEASE x", nil, "commit", false},
		"savepoint that is refused":  {txscope.Postgres, "SAVEPOINT x", &pgconn.PgError{Code: "25P02"}, "commit", false},
		"temporary table does not":   {txscope.MySQL, "CREATE TEMPORARY TABLE x (a INT)", nil, "commit", false},
		"two in one of which second": {txscope.MySQL, "SAVEPOINT `a;b`; COMMIT", nil, "unknown", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, execer, log := recorded(t, tt.dialect)
			s.Observe(t.Context(), tt.query, tt.err)
			require.Empty(t, *log, "nothing runs before the end")
			require.Equal(t, !tt.refuses, s.Active())
			_, err := s.ExecContext(t.Context(), "INSERT INTO outbox_event VALUES (1)")
			if tt.refuses {
				require.ErrorIs(t, err, outbox.ErrNoTransaction)
				require.ErrorIs(t, s.AfterCommit(func(context.Context) {}), outbox.ErrNoTransaction)
				require.Zero(t, execer.ran)
			} else {
				require.NoError(t, err)
			}
			s.Finish(t.Context(), txscope.Committed, nil)
			s.Finish(t.Context(), txscope.Committed, nil)
			require.Equal(t, []string{tt.want}, *log)
			require.False(t, s.Active())
		})
	}
}

func TestDeadlockOfTheScopesOwnStatement(t *testing.T) {
	t.Parallel()
	s, execer, _ := recorded(t, txscope.MySQL)
	execer.err = &mysql.MySQLError{Number: 1213}
	_, err := s.ExecContext(t.Context(), "INSERT INTO outbox_event VALUES (1)")
	require.True(t, sqlerr.IsDeadlock(err))
	require.ErrorIs(t, s.Doomed(), execer.err)
	require.False(t, s.Active())
}

func TestSavepointNamesAsTheDatabaseComparesThem(t *testing.T) {
	t.Parallel()
	for dialect, want := range map[string]string{
		txscope.Postgres: "unknown", // another savepoint
		txscope.SQLite:   "commit",
		txscope.MySQL:    "commit",
	} {
		s, _, log := recorded(t, dialect)
		s.Observe(t.Context(), `SAVEPOINT "Upper"`, nil)
		s.Observe(t.Context(), `ROLLBACK TO upper`, nil)
		s.Finish(t.Context(), txscope.Committed, nil)
		require.Equal(t, []string{want}, *log, dialect)
	}
}

func TestFailedIsMendedByRollbackTo(t *testing.T) {
	t.Parallel()
	s, _, _ := recorded(t, txscope.Postgres)
	s.Observe(t.Context(), "SAVEPOINT a", nil)
	s.Observe(t.Context(), "INSERT INTO t VALUES (1)", &pgconn.PgError{Code: "23505"})
	require.Error(t, s.Failed())
	s.Observe(t.Context(), "ROLLBACK TO a", nil)
	require.NoError(t, s.Failed())
}

func TestCallbacksContextDoesNotEnd(t *testing.T) {
	t.Parallel()
	s, _, _ := recorded(t, "")
	var seen error
	require.NoError(t, s.AfterRollback(func(ctx context.Context, _ error) { seen = ctx.Err() }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Finish(ctx, txscope.Unknown, nil)
	require.NoError(t, seen)
}
