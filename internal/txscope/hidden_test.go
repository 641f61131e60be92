package txscope_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// observed is a scope whose one event tells what it was told, and the statements
// that the scope asked the database.
func observed(t *testing.T, dialect string, answer func(query string) error) (scope *txscope.Scope, outcome func() string, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	told := "nothing"
	scope = txscope.New(txscope.Config{Dialect: dialect, Execer: execFunc(func(query string) error {
		*asked = append(*asked, query)
		return answer(query)
	})})
	require.NoError(t, scope.AfterCommit(func(context.Context) { told = "commit" }))
	require.NoError(t, scope.AfterRollback(func(_ context.Context, cause error) {
		told = "rollback"
		if errors.Is(cause, outbox.ErrOutcomeUnknown) {
			told = "unknown"
		}
	}))
	return scope, func() string {
		scope.Finish(context.Background(), txscope.Committed, nil)
		return told
	}, asked
}

type execFunc func(query string) error

func (f execFunc) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	return nil, f(query)
}

// Statements that hide a rollback leave it to the poller; those that do not are
// taken as they are.
func TestHiddenRollbacks(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"SELECT 1; ROLLBACK TO SAVEPOINT a":                              "unknown",
		"INSERT INTO t VALUES (1);\n rollback":                           "unknown",
		"/*!40000 ROLLBACK TO SAVEPOINT a */":                            "unknown",
		"/*M! ROLLBACK TO SAVEPOINT a */":                                "unknown",
		"/* /* */ ROLLBACK TO SAVEPOINT a -- */":                         "unknown",
		"SET STATEMENT max_statement_time=1 FOR ROLLBACK TO SAVEPOINT a": "unknown",
		"EXECUTE IMMEDIATE 'ROLLBACK TO SAVEPOINT a'":                    "unknown",
		"\ufeffROLLBACK TO SAVEPOINT unseen":                             "unknown",
		"SAVEPOINT a; SELECT 1; ROLLBACK TO SAVEPOINT a":                 "unknown",
		"SELECT 1; PREPARE TRANSACTION 'x'":                              "unknown",
		"SELECT 1;":                                                      "commit",
		"SELECT 1; PREPARE p AS SELECT 2":                                "commit",
		"SELECT 1; SELECT 2":                                             "commit",
		"INSERT INTO t VALUES ('rollback')":                              "commit",
		"/* traceparent='00-rollback' */ SELECT 1":                       "commit",
		"SELECT 'a;b'":                                                   "commit",
		"SET search_path = commits":                                      "commit",
		"EXECUTE plan":                                                   "commit",
	} {
		scope, outcome, _ := observed(t, "", func(string) error { return nil })
		scope.Observe(t.Context(), query, nil)
		require.Equal(t, want, outcome(), query)
	}
}

func TestWhatIsSuspectedIsAskedOnce(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	for name, tc := range map[string]struct {
		dialect string
		suspect func(s *txscope.Scope)
		answer  func(query string) error
		asked   []string
		refused bool
		outcome string
	}{
		"MySQL, there": {
			txscope.MySQL, func(s *txscope.Scope) { s.ObserveError(mysqlError(1205)) }, func(string) error { return nil },
			[]string{"SAVEPOINT outbox_alive", "RELEASE SAVEPOINT outbox_alive"},
			false, "commit",
		},
		"MySQL, gone": {txscope.MySQL, func(s *txscope.Scope) { s.ObserveError(mysqlError(1205)) }, func(query string) error {
			if strings.HasPrefix(query, "RELEASE") {
				return mysqlError(1305)
			}
			return nil
		}, []string{"SAVEPOINT outbox_alive", "RELEASE SAVEPOINT outbox_alive"}, true, "rollback"},
		"SQLite, there": {
			txscope.SQLite, func(s *txscope.Scope) { s.ObserveError(gone) }, func(string) error { return errors.New("within a transaction") },
			[]string{"BEGIN"},
			false, "commit",
		},
		"SQLite, gone": {
			txscope.SQLite, func(s *txscope.Scope) { s.ObserveError(gone) }, func(string) error { return nil },
			[]string{"BEGIN", "ROLLBACK"},
			true, "rollback",
		},
		"PostgreSQL, there": {
			txscope.Postgres, func(s *txscope.Scope) { s.Suspect(txscope.Unknown, gone) }, func(string) error { return nil },
			[]string{"SAVEPOINT outbox_alive", "RELEASE SAVEPOINT outbox_alive"},
			false, "commit",
		},
		"PostgreSQL, a refused COMMIT": {
			txscope.Postgres, func(s *txscope.Scope) { s.Observe(t.Context(), "COMMIT", stateError("23503")) },
			func(string) error { return stateError("25P01") },
			[]string{"SAVEPOINT outbox_alive"},
			true, "rollback",
		},
		"PostgreSQL, a refused PREPARE TRANSACTION": {
			txscope.Postgres, func(s *txscope.Scope) { s.Observe(t.Context(), "PREPARE TRANSACTION 'x'", stateError("55000")) },
			func(string) error { return stateError("25P01") },
			[]string{"SAVEPOINT outbox_alive"},
			true, "rollback",
		},
		"PostgreSQL, failed": {
			txscope.Postgres, func(s *txscope.Scope) { s.Observe(t.Context(), "COMMIT whatever", stateError("42601")) },
			func(string) error { return stateError("25P02") },
			[]string{"SAVEPOINT outbox_alive"},
			false, "commit",
		},
		"PostgreSQL, gone": {
			txscope.Postgres, func(s *txscope.Scope) { s.Suspect(txscope.Unknown, gone) }, func(string) error { return stateError("25P01") },
			[]string{"SAVEPOINT outbox_alive"},
			true, "unknown",
		},
		"nothing suspected": {txscope.MySQL, func(s *txscope.Scope) { s.ObserveError(mysqlError(1062)) }, func(string) error { return nil }, nil, false, "commit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scope, outcome, asked := observed(t, tc.dialect, tc.answer)
			tc.suspect(scope)
			scope.Verify(t.Context())
			scope.Verify(t.Context())
			require.Equal(t, tc.asked, append([]string(nil), *asked...))
			require.Equal(t, tc.refused, !scope.Active())
			require.Equal(t, tc.outcome, outcome())
		})
	}
}

// An answer that says nothing of the transaction is neither: nothing is written
// until one does, and without any the events are of unknown outcome.
func TestWhatTheDatabaseDoesNotTellIsAskedAgain(t *testing.T) {
	t.Parallel()
	busy := errors.New("busy buffer") // the rows of another statement are unread
	for dialect, gone := range map[string]error{txscope.MySQL: mysqlError(1305), txscope.Postgres: stateError("25P01")} {
		for name, tc := range map[string]struct {
			then    error // the answer after the first one
			held    bool
			outcome string
		}{
			"there":          {nil, true, "commit"},
			"gone":           {gone, false, "rollback"},
			"it never tells": {busy, false, "unknown"},
		} {
			t.Run(dialect+", "+name, func(t *testing.T) {
				t.Parallel()
				answer := busy
				scope, outcome, asked := observed(t, dialect, func(query string) error {
					if strings.HasPrefix(query, "INSERT") {
						return nil
					}
					return answer
				})
				scope.Suspect(txscope.RolledBack, errors.New("lock timeout"))
				_, err := scope.ExecContext(t.Context(), "INSERT")
				require.ErrorIs(t, err, busy)
				require.NotErrorIs(t, err, outbox.ErrNoTransaction, "nobody knows")
				require.True(t, scope.Active())
				require.NoError(t, scope.Doomed())
				require.Equal(t, []string{"SAVEPOINT outbox_alive"}, *asked, "nothing was written")

				answer = tc.then
				_, err = scope.ExecContext(t.Context(), "INSERT")
				require.Equal(t, tc.held, err == nil, err)
				require.Equal(t, tc.outcome, outcome())
			})
		}
	}
}

func mysqlError(number uint16) error { return &mysql.MySQLError{Number: number} }
