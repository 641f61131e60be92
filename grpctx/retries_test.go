package grpctx_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboxkit/outbox-go/grpctx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/txretry"
)

// openContended is a shop whose transactions can be refused.
func openContended(t *testing.T, db *testdb.DB, config grpctx.Config) (s *shop, conflict func(ctx context.Context) error) {
	t.Helper()
	s = openShop(t, db)
	target, opts := adaptertest.Conflicting(t, db)
	if target != db {
		s.db = target.DB
		s.writer, s.record = adaptertest.WriterWithoutTable(t, target.DB, string(target.Kind))
		s.adapter = adaptertest.Adapter(t, target.DB, s.writer)
	}
	config.TxOptions = opts
	return s.serve(config), func(ctx context.Context) error {
		tx, _ := s.adapter.TxFrom(ctx)
		return adaptertest.Conflict(t, target, func(query string) error {
			_, err := tx.ExecContext(ctx, query)
			return err
		})
	}
}

// A call whose transaction the database refused runs again, whatever status the handler returned.
func TestAConflictRunsTheCallAgain(t *testing.T) {
	t.Parallel()
	testdb.Each(t, []testdb.Target{adaptertest.Main()[0], sqlite()}, func(t *testing.T, db *testdb.DB) {
		s, conflict := openContended(t, db, grpctx.Config{Retries: 1})
		for i, hidden := range []bool{false, true} {
			attempts := 0
			var header metadata.MD
			require.NoError(t, s.call(func(ctx context.Context) error {
				attempts++
				require.NoError(t, grpc.SetHeader(ctx, metadata.Pairs("attempt", "x")))
				if !txretry.Last(ctx) {
					if err := conflict(ctx); !hidden {
						return err
					}
					return status.Error(codes.Unavailable, "hidden")
				}
				return s.place(ctx)
			}, grpc.Header(&header)))
			require.Equal(t, 2, attempts)
			require.Equal(t, []string{"x"}, header.Get("attempt"), "of the second attempt alone")
			require.Equal(t, i+1, adaptertest.Written(t, s.db))
		}
		attempts := 0
		err := s.call(func(ctx context.Context) error {
			attempts++
			if attempts == 1 {
				txretry.Stop(ctx)
			}
			return conflict(ctx)
		})
		require.Error(t, err)
		require.Equal(t, 1, attempts)
		attempts = 0
		require.Equal(t, codes.Aborted, status.Code(s.call(func(ctx context.Context) error {
			attempts++
			require.Error(t, conflict(ctx))
			return status.Error(codes.Aborted, "again, please")
		})), "the last attempt's status is the client's")
		require.Equal(t, 2, attempts)
	})
}

// Of two interceptors, the outer one runs everything again, unless the inner one has committed.
func TestAConflictOfNestedInterceptors(t *testing.T) {
	t.Parallel()
	outer, conflict := openContended(t, testdb.Open(t, sqlite()), grpctx.Config{})
	inner, innerConflict := openContended(t, testdb.Open(t, sqlite()), grpctx.Config{})
	outer.serve(grpctx.Config{Retries: 3}, grpctx.Config{Transactor: inner.adapter, Retries: 3})
	attempts := 0
	require.NoError(t, outer.call(func(ctx context.Context) error {
		attempts++
		if attempts == 1 {
			require.Error(t, innerConflict(ctx))
			return status.Error(codes.Internal, "hidden")
		}
		return inner.place(ctx)
	}))
	require.Equal(t, 2, attempts)

	outer.serve(grpctx.Config{Retries: 3, RollbackOn: func(context.Context, error) bool { return true }}, grpctx.Config{Transactor: inner.adapter})
	attempts = 0
	require.NoError(t, outer.call(func(ctx context.Context) error {
		attempts++
		require.Error(t, conflict(ctx))
		return inner.place(ctx)
	}))
	require.Equal(t, 1, attempts, "the inner transaction has committed")
	require.Equal(t, 2, adaptertest.Written(t, inner.db))

	// With two transactors of one pool, the inner transaction is a savepoint.
	outer.serve(grpctx.Config{Retries: 3}, grpctx.Config{Transactor: adaptertest.Adapter(t, outer.db, outer.writer)})
	attempts = 0
	require.NoError(t, outer.call(func(ctx context.Context) error {
		attempts++
		if attempts == 1 {
			return conflict(ctx)
		}
		return outer.place(ctx)
	}))
	require.Equal(t, 2, attempts)
}

func TestRetriesAreChecked(t *testing.T) {
	t.Parallel()
	_, err := grpctx.Config{Transactor: broken{}, Retries: -1}.ToInterceptor()
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "Config.Retries", field.Field)
}
