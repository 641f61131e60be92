package txretry_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/txretry"
)

// refused is an error of PostgreSQL.
type refused string

func (e refused) Error() string    { return "refused: " + string(e) }
func (e refused) SQLState() string { return string(e) }

const serialization refused = "40001"

func TestDoRunsAgainAfterConflictsAlone(t *testing.T) {
	t.Parallel()
	other := errors.New("another error")
	for name, tc := range map[string]struct {
		retries int
		errs    []error // of the attempts
		want    error
		calls   int
	}{
		"success":             {3, []error{nil}, nil, 1},
		"a conflict":          {3, []error{serialization, nil}, nil, 2},
		"a wrapped conflict":  {3, []error{fmt.Errorf("placing: %w", serialization), nil}, nil, 2},
		"two conflicts":       {3, []error{serialization, refused("40P01"), nil}, nil, 3},
		"too many":            {2, []error{serialization, serialization, serialization}, serialization, 3},
		"no retries":          {0, []error{serialization}, serialization, 1},
		"another error":       {3, []error{other}, other, 1},
		"then another":        {3, []error{serialization, other}, other, 2},
		"NOWAIT":              {3, []error{refused("55P03")}, refused("55P03"), 1},
		"an unknown outcome":  {3, []error{fmt.Errorf("%w: %w", outbox.ErrOutcomeUnknown, serialization)}, serialization, 1},
		"statement completed": {3, []error{refused("40003")}, refused("40003"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			err := txretry.Do(t.Context(), tc.retries, func(ctx context.Context) error {
				calls++
				require.Equal(t, calls, txretry.Attempt(ctx))
				require.Equal(t, calls == tc.retries+1, txretry.Last(ctx))
				return tc.errs[calls-1]
			})
			require.ErrorIs(t, err, tc.want)
			require.Equal(t, tc.calls, calls)
		})
	}
}

func TestDoRefusesANegativeNumber(t *testing.T) {
	t.Parallel()
	err := txretry.Do(t.Context(), -1, func(context.Context) error { panic("called") })
	require.EqualError(t, err, "outbox: txretry.Do retries is -1; it must be positive, or zero for a single attempt")
}

func TestStopForbidsAnotherAttempt(t *testing.T) {
	t.Parallel()
	require.True(t, txretry.Last(t.Context()))
	require.Equal(t, 1, txretry.Attempt(t.Context()))
	txretry.Stop(t.Context())
	calls := 0
	require.ErrorIs(t, txretry.Do(t.Context(), 3, func(ctx context.Context) error {
		calls++
		require.False(t, txretry.Last(ctx))
		txretry.Stop(ctx)
		require.True(t, txretry.Last(ctx))
		return serialization
	}), serialization)
	require.Equal(t, 1, calls)
}

// Of two that are nested, the outer one runs everything again.
func TestNested(t *testing.T) {
	t.Parallel()
	outer, inner := 0, 0
	require.NoError(t, txretry.Do(t.Context(), 3, func(ctx context.Context) error {
		outer++
		return txretry.Do(ctx, 3, func(ctx context.Context) error {
			inner++
			require.True(t, txretry.Last(ctx))
			require.Equal(t, outer, txretry.Attempt(ctx))
			if outer < 3 {
				return serialization
			}
			txretry.Stop(ctx)
			return nil
		})
	}))
	require.Equal(t, []int{3, 3}, []int{outer, inner})
	outer = 0
	require.Error(t, txretry.Do(t.Context(), 3, func(ctx context.Context) error {
		outer++
		return txretry.Do(ctx, 3, func(ctx context.Context) error {
			txretry.Stop(ctx)
			return serialization
		})
	}))
	require.Equal(t, 1, outer, "Stop holds for the code around")
}

// The pauses are random, grow, and end with the context.
func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		longest := make([]time.Duration, 12)
		for range 200 {
			last := time.Now()
			require.Error(t, txretry.Do(t.Context(), len(longest), func(ctx context.Context) error {
				if n := txretry.Attempt(ctx); n > 1 {
					longest[n-2] = max(longest[n-2], time.Since(last))
				}
				last = time.Now()
				return serialization
			}))
		}
		for i, d := range longest {
			bound := min(10*time.Millisecond<<i, time.Second)
			require.LessOrEqual(t, d, bound)
			require.Greater(t, d, bound/2, "of 200 random pauses, before attempt %d", i+2)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began, calls := time.Now(), 0
		require.ErrorIs(t, txretry.Do(ctx, 1000, func(context.Context) error {
			calls++
			return serialization
		}), serialization)
		require.LessOrEqual(t, time.Since(began), time.Second)
		require.Greater(t, calls, 2)
	})
}

// Within a transaction, the code around the transaction runs everything again.
func TestWithinATransaction(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, adaptertest.Main()[2])
	writer, _ := adaptertest.Writer(t, db.DB, string(db.Kind))
	a := adaptertest.Adapter(t, db.DB, writer)
	calls := 0
	require.ErrorIs(t, outbox.InTx(t.Context(), a, func(ctx context.Context) error {
		return txretry.Do(ctx, 3, func(ctx context.Context) error {
			calls++
			require.True(t, txretry.Last(ctx))
			return serialization
		})
	}), serialization)
	require.Equal(t, 1, calls)
}

// The conflict of a real database is found on its transaction, by statement and by query, and a
// transaction that runs again commits.
func TestRealConflicts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Drivers(), func(t *testing.T, db *testdb.DB) {
		db, opts := adaptertest.Conflicting(t, db)
		writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
		a := adaptertest.Adapter(t, db.DB, writer)
		for name, run := range map[string]func(ctx context.Context, tx *sql.Tx, query string) error{
			"exec": func(ctx context.Context, tx *sql.Tx, query string) error {
				_, err := tx.ExecContext(ctx, query)
				return err
			},
			"query": func(ctx context.Context, tx *sql.Tx, query string) error {
				rows, err := tx.QueryContext(ctx, query)
				if err != nil {
					return err
				}
				for rows.Next() { //nolint:revive // reads them all
				}
				return errors.Join(rows.Err(), rows.Close())
			},
			"prepared": func(ctx context.Context, tx *sql.Tx, query string) error {
				stmt, err := tx.PrepareContext(ctx, query)
				if err != nil {
					return err
				}
				_, err = stmt.ExecContext(ctx)
				return errors.Join(err, stmt.Close())
			},
		} {
			record.Reset()
			var found error
			calls := 0
			require.NoError(t, txretry.Do(t.Context(), 1, func(ctx context.Context) error {
				calls++
				return a.RunInTx(ctx, opts, func(ctx context.Context, tx *sql.Tx) error {
					first := !txretry.Last(ctx)
					if !first || db.Kind != testdb.SQLite { // where a write would keep the other transaction out
						if _, err := writer.Write(ctx, adaptertest.Event()); err != nil {
							return err
						}
					}
					if first {
						err := adaptertest.Conflict(t, db, func(query string) error { return run(ctx, tx, query) })
						found = txretry.Conflict(ctx, nil)
						return err
					}
					require.NoError(t, txretry.Conflict(ctx, nil))
					return nil
				})
			}), name)
			require.True(t, txretry.IsConflict(found), "%s: %v", name, found)
			require.Equal(t, 2, calls, name)
			want := []string{"rollback", "commit"}
			if db.Kind == testdb.SQLite {
				want = want[1:]
			}
			require.Equal(t, want, record.Outcomes(), name)
		}
	})
}

// A conflict that a savepoint took back may still be the reason for the rollback of the transaction.
func TestAConflictInASavepoint(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		db, opts := adaptertest.Conflicting(t, db)
		writer, _ := adaptertest.Writer(t, db.DB, string(db.Kind))
		a := adaptertest.Adapter(t, db.DB, writer)
		err := txretry.Do(t.Context(), 0, func(ctx context.Context) error {
			return a.RunInTx(ctx, opts, func(ctx context.Context, tx *sql.Tx) error {
				exec := func(query string) error {
					_, err := tx.ExecContext(ctx, query)
					return err
				}
				require.NoError(t, exec("SAVEPOINT s"))
				require.Error(t, adaptertest.Conflict(t, db, exec))
				err := exec("ROLLBACK TO SAVEPOINT s")
				if db.Kind == testdb.MySQL { // the deadlock has taken the savepoint too
					require.Error(t, txretry.Conflict(ctx, nil))
					return err
				}
				require.NoError(t, err)
				require.Error(t, txretry.Conflict(ctx, nil), "in case that the whole transaction is rolled back for it")
				return nil
			})
		})
		require.Equal(t, db.Kind == testdb.MySQL, err != nil)
	})
}

// Outside of Do, nothing can run again.
func TestOutsideOfDo(t *testing.T) {
	t.Parallel()
	require.NoError(t, txretry.Conflict(t.Context(), serialization))
	txretry.Watch(t.Context())
	txretry.Committed(t.Context(), t.Context())
	require.ErrorIs(t, txretry.Do(t.Context(), 0, func(ctx context.Context) error {
		require.NoError(t, txretry.Conflict(ctx, fmt.Errorf("%w: %w", outbox.ErrOutcomeUnknown, serialization)))
		return txretry.Conflict(ctx, fmt.Errorf("placing: %w", serialization))
	}), serialization)
}

// MySQL's lock timeout rolls the statement back, and the code the transaction.
func TestLockTimeout(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main()[1:2], func(t *testing.T, db *testdb.DB) {
		db, _ = adaptertest.Conflicting(t, db)
		writer, _ := adaptertest.Writer(t, db.DB, string(db.Kind))
		a := adaptertest.Adapter(t, db.DB, writer)
		holder, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = holder.Rollback() })
		_, err = holder.ExecContext(t.Context(), "UPDATE contended SET n = 100 WHERE id = 1")
		require.NoError(t, err)
		calls := 0
		require.NoError(t, txretry.Do(t.Context(), 1, func(ctx context.Context) error {
			calls++
			return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "SET innodb_lock_wait_timeout = 1")
				require.NoError(t, err)
				_, err = tx.ExecContext(ctx, "UPDATE contended SET n = n + 1 WHERE id = 1")
				if calls == 1 {
					require.Error(t, err)
					require.Error(t, txretry.Conflict(ctx, nil))
					require.NoError(t, holder.Rollback())
				}
				return err
			})
		}))
		require.Equal(t, 2, calls)
	})
}

// Many transactions change a row that each of them has read, and none is lost.
func TestContention(t *testing.T) {
	t.Parallel()
	const clients, times = 6, 5
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		db, opts := adaptertest.Conflicting(t, db)
		writer, _ := adaptertest.Writer(t, db.DB, string(db.Kind))
		a := adaptertest.Adapter(t, db.DB, writer)
		if db.Kind == testdb.MySQL { // where shared locks that become exclusive are deadlocks
			opts = &sql.TxOptions{Isolation: sql.LevelSerializable}
		}
		ended := make(chan error, clients*times)
		for range clients {
			go func() {
				for range times {
					ended <- txretry.Do(t.Context(), 1000, func(ctx context.Context) error {
						return a.RunInTx(ctx, opts, func(ctx context.Context, tx *sql.Tx) error { return add(ctx, writer, tx) })
					})
				}
			}()
		}
		for range clients * times {
			require.NoError(t, <-ended)
		}
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT n FROM contended").Scan(&n))
		require.Equal(t, []int{clients * times, clients * times}, []int{n, adaptertest.Written(t, db.DB)})
	})
}

func add(ctx context.Context, writer *outbox.Writer, tx *sql.Tx) error {
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT n FROM contended WHERE id = 1").Scan(&n); err != nil {
		return err
	}
	if _, err := writer.Write(ctx, adaptertest.Event()); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE contended SET n = %d WHERE id = 1", n+1))
	return err
}

// PostgreSQL may report a conflict after the first rows of a query.
func TestAConflictAmongTheRows(t *testing.T) {
	t.Parallel()
	for _, target := range adaptertest.Drivers() {
		if target.Kind != testdb.Postgres {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db, opts := adaptertest.Conflicting(t, testdb.Open(t, target))
			adaptertest.Exec(t, db.DB, "INSERT INTO contended (id, n) VALUES (2, 0)")
			writer, _ := adaptertest.Writer(t, db.DB, string(db.Kind))
			a := adaptertest.Adapter(t, db.DB, writer)
			require.True(t, txretry.IsConflict(a.RunInTx(inDo(t), opts, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := writer.Write(ctx, adaptertest.Event()); err != nil {
					return err
				}
				adaptertest.Exec(t, db.DB, "UPDATE contended SET n = 1 WHERE id = 2")
				rows, err := tx.QueryContext(ctx, "SELECT n FROM contended ORDER BY id FOR UPDATE")
				require.NoError(t, err)
				require.True(t, rows.Next())
				require.False(t, rows.Next())
				require.NoError(t, rows.Close())
				return txretry.Conflict(ctx, nil)
			})))
		})
	}
}

// inDo is a context within Do.
func inDo(t testing.TB) (within context.Context) {
	t.Helper()
	require.NoError(t, txretry.Do(t.Context(), 0, func(ctx context.Context) error {
		within = ctx //nolint:fatcontext // for a single use
		return nil
	}))
	return within
}

// A transaction that has ended in another way than by a rollback does not run again.
func TestAConflictBeforeAnotherEnd(t *testing.T) {
	t.Parallel()
	db, opts := adaptertest.Conflicting(t, testdb.Open(t, adaptertest.Main()[2]))
	writer, _ := adaptertest.Writer(t, db.DB, string(db.Kind))
	a := adaptertest.Adapter(t, db.DB, writer)
	require.NoError(t, txretry.Do(t.Context(), 0, func(ctx context.Context) error {
		txCtx, tx, err := a.Begin(ctx, opts)
		require.NoError(t, err)
		plain, _ := a.TxFrom(txCtx)
		conflict := adaptertest.Conflict(t, db, func(query string) error {
			_, err := plain.ExecContext(txCtx, query)
			return err
		})
		require.NoError(t, tx.Commit())
		return txretry.Conflict(txCtx, conflict)
	}))
}

// A handler's own Do around another pool tells the code around.
func TestDoTellsTheCodeAround(t *testing.T) {
	t.Parallel()
	calls := 0
	require.NoError(t, txretry.Do(t.Context(), 1, func(ctx context.Context) error {
		if calls++; calls == 2 {
			return nil
		}
		_ = txretry.Do(ctx, 1, func(context.Context) error { return serialization })
		return txretry.Conflict(ctx, nil)
	}))
	require.Equal(t, 2, calls)
}

// After the commit, as in a callback, Do runs transactions of its own.
func TestDoAfterTheCommit(t *testing.T) {
	t.Parallel()
	calls := 0
	require.NoError(t, txretry.Do(t.Context(), 0, func(ctx context.Context) error {
		txretry.Committed(ctx, ctx)
		return txretry.Do(ctx, 1, func(context.Context) error {
			if calls++; calls == 1 {
				return serialization
			}
			return nil
		})
	}))
	require.Equal(t, 2, calls)
}
