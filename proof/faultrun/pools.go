package faultrun

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	_ "github.com/go-sql-driver/mysql" // the drivers of the processes
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // …
	_ "github.com/lib/pq"              // …
	_ "modernc.org/sqlite"             // …

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/adapters/pqnotify"
	"github.com/outboxkit/outbox-go/outbox"
)

// native is the driver that is no driver of database/sql.
const native = "pgxpool"

// pools are the pool of a process; pgx is nil unless the driver is pgxpool.
type pools struct {
	db  *sql.DB
	pgx *pgxpool.Pool
}

// open opens the pool of a process. open does not query the database.
func open(spec Spec, crash *crasher) pools {
	connections := spec.Connections
	if connections == 0 {
		connections = 16
	}
	if spec.Driver != native {
		db := must(crash.open(spec))
		db.SetMaxOpenConns(connections)
		return pools{db: db}
	}
	config := must(pgxpool.ParseConfig(spec.DSN))
	config.MaxConns = int32(connections) //nolint:gosec // a small number
	outboxpgx.Follow(config.ConnConfig)
	pool := must(pgxpool.NewWithConfig(context.Background(), config))
	return pools{db: outboxpgx.DB(pool), pgx: pool}
}

func (n *node) notifier() outbox.Notifier {
	switch {
	case !n.Notify:
		return nil
	case n.Driver == "postgres":
		return must(pqnotify.New(n.DSN))
	case n.Driver == "pgx" || n.Driver == native:
		return must(pgnotify.FromDSN(n.DSN))
	default:
		panic(fmt.Sprintf("faultrun: there are no notifications with %s", n.Driver))
	}
}

// visit uses the pool like other code of an application, until ctx ends.
func (n *node) visit(ctx context.Context) {
	for pause(ctx, 20*time.Millisecond) {
		conn, err := n.pools.db.Conn(ctx)
		if err != nil {
			continue
		}
		pause(ctx, 50*time.Millisecond)
		_ = conn.Close()
	}
}
