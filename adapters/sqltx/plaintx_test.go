package sqltx_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// The row would be in a database where nobody delivers it.
func TestPlainTransactionOfAnotherPoolIsForeign(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		other := openSQLite(t)
		createTable(t, db.DB)
		for name, opts := range map[string][]sqltx.Option{"strict": nil, "unmanaged allowed": {sqltx.AllowUnmanaged()}} {
			a := sqltx.New(db.DB, newWriter(t, db.DB, string(db.Kind)), opts...)
			conn, err := other.Conn(t.Context())
			require.NoError(t, err)
			ofConn, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			for _, tx := range []*sql.Tx{begin(t, other), ofConn} {
				_, err := a.Write(t.Context(), tx, event())
				require.ErrorIs(t, err, outbox.ErrForeignTransaction, name)
				_, err = a.WriteAll(t.Context(), tx, nil)
				require.ErrorIs(t, err, outbox.ErrForeignTransaction, name)
				require.NoError(t, tx.Rollback())
			}
			require.NoError(t, conn.Close())
		}
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		write(t, sqltx.New(db.DB, newWriter(t, db.DB, string(db.Kind)), sqltx.AllowUnmanaged()), tx)
		require.NoError(t, tx.Commit())
		require.Equal(t, 1, written(t, db.DB), "a connection's transaction is one of its pool")
	})
}

func TestPlainTransactionThatIsOverTakesNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, opts := range map[string][]sqltx.Option{"strict": nil, "unmanaged allowed": {sqltx.AllowUnmanaged()}} {
			a := sqltx.New(db.DB, newWriter(t, db.DB, string(db.Kind)), opts...)
			tx := begin(t, db.DB)
			require.NoError(t, tx.Rollback())
			for what, envs := range map[string][]outbox.Envelope{"an event": {event()}, "none": nil, "an invalid one": {{}}} {
				for _, ctx := range []context.Context{t.Context(), ended} {
					_, err := a.WriteAll(ctx, tx, envs)
					require.ErrorIs(t, err, outbox.ErrNoTransaction, "%s, %s", name, what)
					require.ErrorIs(t, err, sql.ErrTxDone)
				}
			}
		}
	})
}
