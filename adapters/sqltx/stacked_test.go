package sqltx_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// A pool may serve bun, plain transactions and the adapter's own side by side.
func TestBunAboveAWrappedConnectorFiresOnce(t *testing.T) {
	t.Parallel()
	dialects := map[testdb.Kind]func() schema.Dialect{
		testdb.Postgres: func() schema.Dialect { return pgdialect.New() },
		testdb.MySQL:    func() schema.Dialect { return mysqldialect.New() },
		testdb.SQLite:   func() schema.Dialect { return sqlitedialect.New() },
	}
	testdb.Each(t, testdb.Main(), func(t *testing.T, bare *testdb.DB) {
		f := newWrappedFixture(t, bare)
		db := outboxbun.Attach(bun.NewDB(f.db, dialects[bare.Kind]()))
		a, err := outboxbun.New(db, newWriter(t, f.db, string(bare.Kind), f.rec.hook()))
		require.NoError(t, err)
		require.NoError(t, db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := a.Write(ctx, tx, event())
			require.NoError(t, err)
			return err
		}))
		require.Equal(t, []string{"commit"}, f.rec.all(), "before RunInTx returns")

		// To sqltx it is one more transaction that embeds a *sql.Tx.
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		write(t, f.a, tx)
		_, err = a.Write(t.Context(), tx, event())
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		f.rec.eventually(t, "commit", "rollback", "rollback")
		require.Equal(t, 1, written(t, f.db))
	})
}

func TestGORMAboveAWrappedConnectorFiresOnce(t *testing.T) {
	t.Parallel()
	f := newWrappedFixture(t, testdb.Open(t, testdb.Main()[0]))
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: f.db}), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	require.NoError(t, db.Use(outboxgorm.Plugin()))
	a, err := outboxgorm.New(db, newWriter(t, f.db, "postgres", f.rec.hook()))
	require.NoError(t, err)
	require.NoError(t, db.WithContext(t.Context()).Transaction(func(tx *gorm.DB) error {
		_, err := a.Write(t.Context(), tx, event())
		return err
	}))
	require.Equal(t, []string{"commit"}, f.rec.all(), "before Transaction returns")
	tx := begin(t, f.db)
	write(t, f.a, tx)
	require.NoError(t, tx.Rollback())
	f.rec.eventually(t, "commit", "rollback")
	require.Equal(t, 1, written(t, f.db))
}

// Nobody polls: what arrives came over the hot path.
func TestEventOfAPlainTransactionTakesTheHotPath(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, bare *testdb.DB) {
		db := wrappedPool(t, bare)
		store, err := sqlstore.Detect(t.Context(), db)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db))
		ob, err := outbox.New(outbox.Config{
			DB: db, Store: store, Logger: slog.New(slog.DiscardHandler),
			Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}},
		})
		require.NoError(t, err)
		arrived := make(chan string, 1)
		require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.Handle(func(_ context.Context, env outbox.Envelope) error {
			arrived <- env.EventID
			return nil
		}))))
		require.NoError(t, ob.Start(t.Context()))
		defer func() { require.NoError(t, ob.Close(context.WithoutCancel(t.Context()))) }()

		tx := begin(t, db)
		id, err := sqltx.New(db, ob.Writer()).Write(t.Context(), tx, event())
		require.NoError(t, err)
		require.Empty(t, arrived)
		require.NoError(t, tx.Commit())
		select {
		case got := <-arrived:
			require.Equal(t, id, got)
		case <-time.After(20 * time.Second):
			t.Fatal("the event did not arrive")
		}
	})
}
