package recipes_test

import (
	"context"
	"database/sql"
	_ "embed"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm/logger"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/samples/recipes"
)

//go:embed schema.sql
var schema string

// shop is what every recipe can do.
type shop interface {
	Place(ctx context.Context, order recipes.Order) error
	PlaceEach(ctx context.Context, orders []recipes.Order) (refused []error, err error)
}

// opener opens a recipe's shop, and its pool as one of database/sql.
type opener func(t *testing.T, dsn string) (shop, *sql.DB)

var recipeOf = map[string]opener{
	"database/sql": func(t *testing.T, dsn string) (shop, *sql.DB) {
		t.Helper()
		s, err := recipes.NewSQLShop(dsn)
		require.NoError(t, err)
		return s, s.DB
	},
	"database/sql, by hand": func(t *testing.T, dsn string) (shop, *sql.DB) {
		t.Helper()
		s, err := recipes.NewSQLShop(dsn)
		require.NoError(t, err)
		return otherwise{s, s.PlaceByHand}, s.DB
	},
	"sqlx": func(t *testing.T, dsn string) (shop, *sql.DB) {
		t.Helper()
		s, err := recipes.NewSqlxShop(dsn)
		require.NoError(t, err)
		return s, s.DB.DB
	},
	"sqlc": func(t *testing.T, dsn string) (shop, *sql.DB) {
		t.Helper()
		s, err := recipes.NewSQLCShop(dsn)
		require.NoError(t, err)
		return s, s.DB
	},
	"ent": func(t *testing.T, dsn string) (shop, *sql.DB) {
		t.Helper()
		s, err := recipes.NewEntShop(dsn)
		require.NoError(t, err)
		return s, s.DB
	},
	"ent, in InTx": func(t *testing.T, dsn string) (shop, *sql.DB) {
		t.Helper()
		s, err := recipes.NewEntShop(dsn)
		require.NoError(t, err)
		return otherwise{s, s.PlaceInTx}, s.DB
	},
	"bun": func(t *testing.T, dsn string) (shop, *sql.DB) {
		t.Helper()
		s, err := recipes.NewBunShop(dsn)
		require.NoError(t, err)
		return s, s.DB.DB
	},
	"GORM": func(t *testing.T, dsn string) (shop, *sql.DB) {
		t.Helper()
		s, err := recipes.NewGORMShop(dsn)
		require.NoError(t, err)
		s.DB.Logger = logger.Discard
		pool, err := s.DB.DB()
		require.NoError(t, err)
		return s, pool
	},
	"pgx": func(t *testing.T, dsn string) (shop, *sql.DB) {
		t.Helper()
		s, err := recipes.NewPgxShop(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(s.Pool.Close)
		return s, outboxpgx.DB(s.Pool)
	},
	"pgx, in a batch": func(t *testing.T, dsn string) (shop, *sql.DB) {
		t.Helper()
		s, err := recipes.NewPgxShop(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(s.Pool.Close)
		return otherwise{s, s.PlaceInABatch}, outboxpgx.DB(s.Pool)
	},
	"sqlc for pgx": func(t *testing.T, dsn string) (shop, *sql.DB) {
		t.Helper()
		s, err := recipes.NewSQLCPgxShop(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(s.Pool.Close)
		return s, outboxpgx.DB(s.Pool)
	},
}

// otherwise is a shop with another way to place an order.
type otherwise struct {
	shop
	place func(ctx context.Context, order recipes.Order) error
}

func (o otherwise) Place(ctx context.Context, order recipes.Order) error { return o.place(ctx, order) }

// An order that is placed has its event; one that the database refuses, and one whose
// event cannot be written, have neither. A savepoint that is rolled back takes its order
// and its event with it, and leaves the others.
func TestRecipes(t *testing.T) {
	t.Parallel()
	for name, open := range recipeOf {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shop, db := open(t, testdb.Open(t, testdb.Main()[0]).DSN)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			store := sqlstore.Postgres()
			require.NoError(t, store.CreateSchema(t.Context(), db))
			_, err := db.ExecContext(t.Context(), schema)
			require.NoError(t, err)

			order := func(id string) recipes.Order { return recipes.Order{ID: id, Item: "tea"} }
			tooLong := order(strings.Repeat("x", 200)) // for the outbox's column
			require.NoError(t, shop.Place(t.Context(), order("o-1")))
			require.Error(t, shop.Place(t.Context(), recipes.Order{ID: "o-2"}), "the table refuses it")
			require.Error(t, shop.Place(t.Context(), tooLong), "the outbox refuses its event")
			refused, err := shop.PlaceEach(t.Context(), []recipes.Order{order("o-3"), {ID: "o-4"}, tooLong, order("o-5")})
			require.NoError(t, err)
			require.Len(t, refused, 2)

			var want []outboxtest.Event
			for _, id := range []string{"o-1", "o-3", "o-5"} {
				want = append(want, outboxtest.Event{Type: "OrderPlaced", Aggregate: "Order", AggregateID: id, Payload: order(id)})
			}
			outboxtest.AssertPending(t, store, db, want...)
			var orders string
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT string_agg(id, ' ' ORDER BY id) FROM orders").Scan(&orders))
			require.Equal(t, "o-1 o-3 o-5", orders)
		})
	}
}
