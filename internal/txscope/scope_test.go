package txscope_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

func mysqlError(number uint16) error { return &mysql.MySQLError{Number: number} }

// recorded makes a scope with one event registered. Its database answers every
// statement with the error in *answer.
func recorded(t *testing.T, dialect string) (s *txscope.Scope, answer *error, log *[]string) {
	t.Helper()
	answer, log = new(error), &[]string{}
	s = txscope.New(dialect, func(context.Context, string) error { return *answer })
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
	return s, answer, log
}

// finish ends the scope and waits for its callbacks.
func finish(t *testing.T, s *txscope.Scope, end txscope.End, cause error) {
	t.Helper()
	require.NoError(t, s.EndWith(func() error {
		s.Finish(t.Context(), end, cause)
		return nil
	}))
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
		"no such savepoint on mysql": {txscope.MySQL, "ROLLBACK TO x", mysqlError(1305), "commit", false},
		"text that looks like it":    {txscope.Postgres, "SELECT 'ROLLBACK TO x'", nil, "commit", false},
		"release of an unseen":       {txscope.Postgres, "RELEASE x", nil, "commit", false},
		"savepoint that is refused":  {txscope.Postgres, "SAVEPOINT x", &pgconn.PgError{Code: "25P02"}, "commit", false},
		"temporary table does not":   {txscope.MySQL, "CREATE TEMPORARY TABLE x (a INT)", nil, "commit", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, log := recorded(t, tt.dialect)
			s.Observe(t.Context(), tt.query, tt.err)
			require.Empty(t, *log, "nothing runs before the end")
			require.Equal(t, !tt.refuses, s.Active())
			if tt.refuses {
				require.ErrorIs(t, s.Refusal(), outbox.ErrNoTransaction)
				require.ErrorIs(t, s.AfterCommit(func(context.Context) {}), outbox.ErrNoTransaction)
				require.ErrorIs(t, s.AtCommit(func() {}), outbox.ErrNoTransaction)
			} else {
				require.NoError(t, s.Refusal())
			}
			finish(t, s, txscope.Committed, nil)
			finish(t, s, txscope.Committed, nil)
			require.Equal(t, []string{tt.want}, *log)
			require.False(t, s.Active())
		})
	}
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
		finish(t, s, txscope.Committed, nil)
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
	require.NoError(t, s.EndWith(func() error {
		s.Finish(ctx, txscope.Unknown, nil)
		return nil
	}))
	require.NoError(t, seen)
}

func TestCauseOfTheAdapter(t *testing.T) {
	t.Parallel()
	s, _, _ := recorded(t, "")
	var seen error
	require.NoError(t, s.AfterRollback(func(_ context.Context, cause error) { seen = cause }))
	failure := errors.New("no")
	s.Because(nil)
	s.Because(failure)
	s.Because(errors.New("another"))
	finish(t, s, txscope.RolledBack, nil)
	require.Equal(t, failure, seen)
}

// While the rows of another statement are unread, the database does not answer.
func TestDatabaseIsAskedAgainUntilItAnswers(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		s, answer, log := recorded(t, txscope.MySQL)
		s.Observe(t.Context(), "UPDATE t SET a = 1", mysqlError(1205))
		require.True(t, s.Suspected())
		*answer = errors.New("the connection is busy")
		s.Verify(t.Context())
		require.Error(t, s.Refusal())
		require.NotErrorIs(t, s.Refusal(), outbox.ErrNoTransaction)
		require.True(t, s.Suspected())

		want := "commit"
		if *answer = nil; gone {
			*answer, want = mysqlError(1305), "rollback"
		}
		s.Verify(t.Context())
		require.False(t, s.Suspected())
		require.Equal(t, gone, s.Doomed() != nil)
		require.Equal(t, !gone, s.Refusal() == nil)
		finish(t, s, txscope.Committed, nil)
		require.Equal(t, []string{want}, *log)
	}
	s, answer, log := recorded(t, txscope.MySQL)
	s.Observe(t.Context(), "UPDATE t SET a = 1", mysqlError(1205))
	*answer = errors.New("the connection is busy")
	s.Verify(t.Context())
	finish(t, s, txscope.Committed, nil)
	require.Equal(t, []string{"unknown"}, *log, "it never answered")
}

func TestCallbacksWaitForEndWith(t *testing.T) {
	t.Parallel()
	s, _, _ := recorded(t, "")
	gate, ran := make(chan struct{}), false
	s.Observe(t.Context(), "SAVEPOINT a", nil)
	require.NoError(t, s.AfterRollback(func(context.Context, error) { <-gate }))
	s.Observe(t.Context(), "ROLLBACK TO a", nil) // its callback blocks on a goroutine of its own
	require.NoError(t, s.AfterCommit(func(context.Context) { ran = true }))
	require.NoError(t, s.EndWith(func() error {
		s.Finish(t.Context(), txscope.Committed, nil)
		close(gate)
		return nil
	}))
	require.True(t, ran, "in order, before EndWith returns")
}
