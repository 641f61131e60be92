package testing_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestAMockedPoolNeedsNoExpectation(t *testing.T) {
	mock, expect, err := sqlmock.New()
	require.NoError(t, err)
	defer mock.Close()
	store := outboxtest.NewStore() // the outbox sends nothing to the mock
	shop := mockedShop(t, sqltx.Watch(mock), store)

	expect.ExpectBegin()
	expect.ExpectExec("INSERT INTO orders").WithArgs("o-1", "tea").WillReturnResult(sqlmock.NewResult(0, 1))
	expect.ExpectCommit()
	require.NoError(t, shop.Place(t.Context(), Order{ID: "o-1", Item: "tea"}))
	require.NoError(t, expect.ExpectationsWereMet())
	outboxtest.AssertEmitted(t, store, outboxtest.Event{Type: "OrderPlaced", AggregateID: "o-1"})
}

func mockedShop(t *testing.T, db *sql.DB, store outbox.Store) *Shop {
	t.Helper()
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	a, err := sqltx.New(db, ob.Writer())
	require.NoError(t, err)
	return &Shop{tx: a, events: ob.Writer(), orders: sqlOrders{a}}
}

func TestATransactionThatIsRolledBackEmitsNothingToTheMock(t *testing.T) {
	mock, expect, err := sqlmock.New()
	require.NoError(t, err)
	defer mock.Close()
	store := outboxtest.NewStore()
	shop := mockedShop(t, sqltx.Watch(mock), store)
	expect.ExpectBegin()
	expect.ExpectExec("INSERT INTO orders").WillReturnError(errors.New("out of stock"))
	expect.ExpectRollback()
	require.ErrorContains(t, shop.Place(t.Context(), Order{ID: "o-1"}), "out of stock")
	require.NoError(t, expect.ExpectationsWereMet())
	outboxtest.AssertNothingEmitted(t, store)
}

func TestThePlacedEventIsOneInsert(t *testing.T) {
	for name, store := range map[string]*sqlstore.Store{
		"postgres": sqlstore.Postgres(sqlstore.WithTable("public.outbox_event")),
		"mysql":    sqlstore.MySQL(sqlstore.WithTable("shop.outbox_event")),
		"sqlite":   sqlstore.SQLite(),
	} {
		t.Run(name, func(t *testing.T) {
			mock, expect, err := sqlmock.New()
			require.NoError(t, err)
			defer mock.Close()
			shop := mockedShop(t, sqltx.Watch(mock), store)
			expect.ExpectBegin()
			expect.ExpectExec("INSERT INTO orders").WillReturnResult(sqlmock.NewResult(0, 1))
			expect.ExpectExec("INSERT INTO .*outbox_event").WithArgs(
				sqlmock.AnyArg(), "OrderPlaced", "Order", "o-1", nil, // event id, types, aggregate id, tenant
				`{"id":"o-1","item":"tea"}`, nil, // payload, headers
				sqlmock.AnyArg(), sqlmock.AnyArg(), // available_at, created_at
			).WillReturnResult(sqlmock.NewResult(0, 1))
			if name == "postgres" {
				expect.ExpectExec("SELECT 1").WillReturnResult(sqlmock.NewResult(0, 0)) // the adapter, before COMMIT
			}
			expect.ExpectCommit()
			require.NoError(t, shop.Place(t.Context(), Order{ID: "o-1", Item: "tea"}))
			require.NoError(t, expect.ExpectationsWereMet())
		})
	}
}

// mockedPgx makes the adapter for transactions of pgxmock. Its own pool never connects.
func mockedPgx(t *testing.T) (*outboxpgx.Adapter, *outboxtest.Store) {
	t.Helper()
	pool, err := outboxpgx.Open(t.Context(), "postgres://127.0.0.1/unused")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db, store := outboxpgx.DB(pool), outboxtest.NewStore()
	t.Cleanup(func() { _ = db.Close() })
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	events, err := outboxpgx.New(pool, ob.Writer(), outboxpgx.AllowUnmanaged()) // a mock has no connection
	require.NoError(t, err)
	return events, store
}

func TestATransactionThatTheTestBeginsOnAMockedPool(t *testing.T) {
	mock, expect, err := sqlmock.New()
	require.NoError(t, err)
	defer mock.Close()
	db, store := sqltx.Watch(mock), outboxtest.NewStore()
	shop := mockedShop(t, db, store)
	expect.ExpectBegin()
	expect.ExpectCommit()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	ctx, err := shop.tx.(*sqltx.Adapter).WithTx(t.Context(), tx)
	require.NoError(t, err)
	_, err = shop.events.Write(ctx, orderPlaced.Envelope("o-3", Order{ID: "o-3"}))
	require.NoError(t, err)
	outboxtest.AssertNothingEmitted(t, store)
	require.NoError(t, tx.Commit())
	outboxtest.AssertEmitted(t, store, outboxtest.Event{AggregateID: "o-3"})
}

// mockTx is a transaction of pgxmock: it has no connection, and panics when it is asked. The module
// of pgxmock does not compile with the version of pgx that this module has.
type mockTx struct{ pgx.Tx }

func (mockTx) Conn() *pgx.Conn { panic("Conn() is not available in pgxmock") }

func TestAMockedTransactionOfPgxNeedsNoExpectation(t *testing.T) {
	t.Parallel()
	events, store := mockedPgx(t)
	_, err := events.Write(t.Context(), mockTx{}, orderPlaced.Envelope("o-1", Order{ID: "o-1"}))
	require.NoError(t, err)
	outboxtest.AssertEmitted(t, store, outboxtest.Event{AggregateID: "o-1"})
}
