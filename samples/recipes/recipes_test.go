package recipes_test

import (
	"context"
	"database/sql"
	_ "embed"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/samples/recipes"
	"github.com/outboxkit/outbox-go/samples/recipes/ent"
	"github.com/outboxkit/outbox-go/samples/recipes/shoppgx"
	"github.com/outboxkit/outbox-go/samples/recipes/shopsql"
)

//go:embed schema.sql
var schema string

// place places an order in one of the ways.
type place func(ctx context.Context, order recipes.Order) error

// An order that is placed has its event; one that the database refuses, and one
// whose event cannot be written, have neither.
func TestRecipes(t *testing.T) {
	t.Parallel()
	for name, recipe := range map[string]func(t *testing.T, dsn string) (*sql.DB, func(*outbox.Writer) place){
		"plain": onSQL(func(db *sql.DB, a *sqltx.Adapter) place {
			return func(ctx context.Context, order recipes.Order) error { return recipes.Plain(ctx, db, a, order) }
		}),
		"sqlc": onSQL(func(db *sql.DB, a *sqltx.Adapter) place {
			return func(ctx context.Context, order recipes.Order) error {
				return recipes.SQLC(ctx, shopsql.New(db), a, order)
			}
		}),
		"sqlx": onSQL(func(db *sql.DB, a *sqltx.Adapter) place {
			return func(ctx context.Context, order recipes.Order) error {
				return recipes.Sqlx(ctx, sqlx.NewDb(db, "pgx"), a, order)
			}
		}),
		"ent": onSQL(func(db *sql.DB, a *sqltx.Adapter) place {
			return func(ctx context.Context, order recipes.Order) error {
				return recipes.Ent(ctx, ent.NewClient(db), a, order)
			}
		}),
		"bun":  onBun,
		"GORM": onGORM,
		"sqlc for pgx": onPgx(func(pool *pgxpool.Pool, a *outboxpgx.Adapter) place {
			return func(ctx context.Context, order recipes.Order) error {
				return recipes.SQLCPgx(ctx, pool, shoppgx.New(pool), a, order)
			}
		}),
		"pgx batch": onPgx(func(pool *pgxpool.Pool, a *outboxpgx.Adapter) place {
			return func(ctx context.Context, order recipes.Order) error {
				return recipes.PgxBatch(ctx, pool, a, order)
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, with := recipe(t, testdb.Open(t, testdb.Main()[0]).DSN)
			store := sqlstore.Postgres()
			require.NoError(t, store.CreateSchema(t.Context(), db))
			_, err := db.ExecContext(t.Context(), schema)
			require.NoError(t, err)
			ob, err := outbox.New(outbox.Config{DB: db, Store: store, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			place := with(ob.Writer())

			placed := recipes.Order{ID: "o-1", Item: "tea"}
			require.NoError(t, place(t.Context(), placed))
			require.Error(t, place(t.Context(), recipes.Order{ID: "o-2"}), "the table refuses it")
			require.Error(t, place(t.Context(), recipes.Order{ID: strings.Repeat("x", 200), Item: "tea"}), "the outbox refuses its event")

			outboxtest.AssertPending(t, store, db, outboxtest.Event{
				Type: "OrderPlaced", Aggregate: "Order", AggregateID: "o-1", Payload: placed,
			})
			var orders int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM orders").Scan(&orders))
			require.Equal(t, 1, orders)
		})
	}
}

func followed(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sqltx.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func onSQL(recipe func(db *sql.DB, a *sqltx.Adapter) place) func(t *testing.T, dsn string) (*sql.DB, func(*outbox.Writer) place) {
	return func(t *testing.T, dsn string) (*sql.DB, func(*outbox.Writer) place) {
		t.Helper()
		db := followed(t, dsn)
		return db, func(writer *outbox.Writer) place {
			a, err := sqltx.New(db, writer)
			require.NoError(t, err)
			return recipe(db, a)
		}
	}
}

func onBun(t *testing.T, dsn string) (*sql.DB, func(*outbox.Writer) place) {
	t.Helper()
	db := followed(t, dsn)
	return db, func(writer *outbox.Writer) place {
		orm := bun.NewDB(db, pgdialect.New())
		a, err := outboxbun.New(orm, writer)
		require.NoError(t, err)
		return func(ctx context.Context, order recipes.Order) error { return recipes.Bun(ctx, orm, a, order) }
	}
}

func onGORM(t *testing.T, dsn string) (*sql.DB, func(*outbox.Writer) place) {
	t.Helper()
	db := followed(t, dsn)
	return db, func(writer *outbox.Writer) place {
		orm, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{Logger: logger.Discard})
		require.NoError(t, err)
		a, err := outboxgorm.New(orm, writer)
		require.NoError(t, err)
		return func(ctx context.Context, order recipes.Order) error { return recipes.GORM(ctx, orm, a, order) }
	}
}

func onPgx(recipe func(pool *pgxpool.Pool, a *outboxpgx.Adapter) place) func(t *testing.T, dsn string) (*sql.DB, func(*outbox.Writer) place) {
	return func(t *testing.T, dsn string) (*sql.DB, func(*outbox.Writer) place) {
		t.Helper()
		pool, err := outboxpgx.Open(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		db := outboxpgx.DB(pool)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db, func(writer *outbox.Writer) place {
			a, err := outboxpgx.New(pool, writer)
			require.NoError(t, err)
			return recipe(pool, a)
		}
	}
}

// The page shows the recipes' own lines.
func TestThePageShowsTheRecipes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/how-to/libraries.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		source.WriteString(unindented(string(text)))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(blocks), 8)
	for _, block := range blocks {
		if !strings.HasPrefix(block[1], "// set-up\n") {
			require.Contains(t, source.String(), unindented(block[1]))
		}
	}
}

func unindented(text string) string {
	return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(text, "")
}
