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

// New registers the metrics. A registry takes those of one outbox, unless a prefix or a
// label distinguishes them.
func ExampleNew() {
	registry := prometheus.NewRegistry()
	metrics, err := outboxprom.New(registry, outboxprom.WithPrefix("shop_outbox"))
	check(err)
	metrics.LeaseLost(2) // the outbox does this
	families, err := registry.Gather()
	check(err)
	for _, family := range families {
		if family.GetName() == "shop_outbox_lease_lost_total" {
			fmt.Println(family.GetName(), family.GetMetric()[0].GetCounter().GetValue())
		}
	}
	check(metrics.Close()) // the outbox does this, too
	// Output:
	// shop_outbox_lease_lost_total 2
}

// The kinds of events are labels, here of at most 100 kinds; the others share one.
func ExampleWithEventLabels() {
	registry := prometheus.NewRegistry()
	metrics, err := outboxprom.New(registry, outboxprom.WithEventLabels(100))
	check(err)
	metrics.Died(outbox.EventKind{AggregateType: "Order", EventType: "OrderPlaced"})
	families, err := registry.Gather()
	check(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetCounter().GetValue() > 0 {
				fmt.Println(family.GetName(), m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue())
			}
		}
	}
	// Output:
	// outbox_dispatch_dead_total Order OrderPlaced
}
