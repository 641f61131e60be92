package outboxprom_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outboxprom")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	db, err := sqltx.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	check(err)
	defer func() { check(db.Close()) }()
	store := sqlstore.SQLite()
	check(store.CreateSchema(ctx, db))

	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	metrics, err := outboxprom.New(registry)
	check(err)
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}, Metrics: metrics})
	check(err)
	check(metrics.WatchTable(ob))
	defer func() { check(ob.Close(ctx)) }() // unregisters the metrics

	a := must(sqltx.New(db, ob.Writer()))
	check(a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := a.Write(ctx, tx, outbox.Envelope{EventType: "order.placed", Payload: outbox.JSON("tea")})
		return err
	}))

	families, err := registry.Gather() // what promhttp.Handler does at a scrape
	check(err)
	for _, family := range families {
		if name := family.GetName(); name == "outbox_events_pending" || name == "outbox_table_up" {
			fmt.Println(name, family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output:
	// outbox_events_pending 1
	// outbox_table_up 1
}

// Two outboxes share a registry if a label distinguishes their metrics.
func ExampleWithConstLabels() {
	registry := prometheus.NewRegistry()
	orders, err := outboxprom.New(registry, outboxprom.WithConstLabels(prometheus.Labels{"outbox": "orders"}))
	check(err)
	mail, err := outboxprom.New(registry, outboxprom.WithConstLabels(prometheus.Labels{"outbox": "mail"}))
	check(err)
	orders.LeaseLost(2)
	mail.LeaseLost(3)

	families, err := registry.Gather()
	check(err)
	for _, family := range families {
		if family.GetName() == "outbox_lease_lost_total" {
			for _, m := range family.GetMetric() {
				fmt.Println(m.GetLabel()[0].GetValue(), m.GetCounter().GetValue())
			}
		}
	}
	_, err = outboxprom.New(registry, outboxprom.WithConstLabels(prometheus.Labels{"outbox": "mail"}))
	fmt.Println(err)
	// Output:
	// mail 3
	// orders 2
	// outboxprom: already registered: metrics outbox_*; give each outbox a prefix (WithPrefix), or the same options and constant labels of the same names with different values (WithConstLabels)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
