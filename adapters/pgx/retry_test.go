package outboxpgx_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/txretry"
)

// A conflict is found on the transaction, by statement, by query and in a batch, also if a savepoint takes
// it back.
func TestConflictsAreFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	db, opts := adaptertest.Conflicting(t, f.plain)
	for name, run := range map[string]func(ctx context.Context, tx pgx.Tx, query string) error{
		"exec": func(ctx context.Context, tx pgx.Tx, query string) error {
			_, err := tx.Exec(ctx, query)
			return err
		},
		"query": func(ctx context.Context, tx pgx.Tx, query string) error {
			rows, err := tx.Query(ctx, query)
			if err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		},
		"batch": func(ctx context.Context, tx pgx.Tx, query string) error {
			batch := &pgx.Batch{}
			batch.Queue(query)
			return tx.SendBatch(ctx, batch).Close()
		},
	} {
		calls := 0
		require.NoError(t, txretry.Do(t.Context(), 1, func(ctx context.Context) error {
			calls++
			return f.inTx(ctx, opts, func(ctx context.Context, tx pgx.Tx) error {
				if txretry.Last(ctx) {
					return txretry.Conflict(ctx, nil)
				}
				err := adaptertest.Conflict(t, db, func(query string) error { return run(ctx, tx, query) })
				require.True(t, txretry.IsConflict(txretry.Conflict(ctx, nil)), name)
				return err
			})
		}), name)
		require.Equal(t, 2, calls, name)
	}
	require.Error(t, txretry.Do(t.Context(), 0, func(ctx context.Context) error {
		return f.inTx(ctx, opts, func(ctx context.Context, tx pgx.Tx) error {
			require.Error(t, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				return adaptertest.Conflict(t, db, func(query string) error {
					_, err := tx.Exec(ctx, query)
					return err
				})
			}))
			return txretry.Conflict(ctx, nil)
		})
	}))
}

// inTx is [outbox.InTx] with options.
func (f fixture) inTx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	txCtx, tx, err := f.a.Begin(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	pgxTx, _ := f.a.TxFrom(txCtx)
	if err := fn(txCtx, pgxTx); err != nil {
		return err
	}
	return tx.Commit()
}
