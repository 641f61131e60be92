package outboxfx_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

// newSQLDB opens a SQLite file; the app closes it when it stops, after the
// outbox.
func newSQLDB(lc fx.Lifecycle) (*sql.DB, error) {
	dir, err := os.MkdirTemp("", "outboxfx")
	if err != nil {
		return nil, err
	}
	db, err := sqltx.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(func() error {
		fmt.Println("closing the database")
		return db.Close()
	}))
	lc.Append(fx.StopHook(func() error { return os.RemoveAll(dir) }))
	return db, nil
}

type order struct{ ID string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

// newAdapter is how transactions begin; outboxbun and outboxgorm have their own.
func newAdapter(db *sql.DB, w *outbox.Writer) (*sqltx.Adapter, error) { return sqltx.New(db, w) }

// shop writes events.
type shop struct{ tx *sqltx.Adapter }

func newShop(tx *sqltx.Adapter) *shop { return &shop{tx} }

func (s *shop) place(ctx context.Context, id string) error {
	return s.tx.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.tx.Write(ctx, tx, orderPlaced.Envelope(id, order{id}))
		return err
	})
}

func newOrderListener() outbox.Binding {
	return orderPlaced.Listen(func(_ context.Context, o order, env outbox.Envelope) error {
		fmt.Println("delivered:", env.EventType, o.ID)
		return nil
	})
}

func Example() {
	var s *shop
	app := fx.New(
		fx.NopLogger,
		fx.Provide(newSQLDB, newAdapter, newShop),
		outboxfx.Module,
		outboxfx.AsBinding(newOrderListener),
		fx.Supply(outboxfx.Config{Mode: outboxfx.SingleNode, CreateSchema: true}),
		fx.Populate(&s),
	)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if err := s.place(ctx, "o-1"); err != nil {
		fmt.Println(err)
	}
	if err := app.Stop(ctx); err != nil { // delivers what is queued
		fmt.Println(err)
	}
	// Output:
	// delivered: OrderPlaced o-1
	// closing the database
}

// mailer is a listener of two kinds of events that depends on a service which
// writes events itself: there is no cycle.
type mailer struct {
	s    *shop
	done chan struct{}
}

func newMailer(s *shop, done chan struct{}) *mailer { return &mailer{s, done} }

func (m *mailer) OnEvent(ctx context.Context, env outbox.Envelope) (outbox.Result, error) {
	fmt.Println("mail:", env.EventType, env.AggregateID)
	if env.EventType == "OrderCancelled" {
		return outbox.Done(), m.s.place(ctx, "instead of "+env.AggregateID)
	}
	close(m.done)
	return outbox.Done(), nil
}

func ExampleAsListener() {
	var tx *sqltx.Adapter
	done := make(chan struct{})
	app := fx.New(
		fx.NopLogger,
		fx.Provide(newSQLDB, newAdapter, newShop),
		fx.Supply(done),
		outboxfx.NewModule(outboxfx.WithConfig(outboxfx.Config{CreateSchema: true})),
		outboxfx.AsListener(newMailer, outboxfx.On("Order", "OrderPlaced"), outboxfx.On("Order", "OrderCancelled")),
		fx.Populate(&tx),
	)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	err := tx.RunInTx(ctx, nil, func(ctx context.Context, sqlTx *sql.Tx) error {
		_, err := tx.Write(ctx, sqlTx, outbox.Envelope{
			EventType: "OrderCancelled", AggregateType: "Order", AggregateID: "o-1", Payload: outbox.JSON(order{"o-1"}),
		})
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	<-done
	if err := app.Stop(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// mail: OrderCancelled o-1
	// mail: OrderPlaced instead of o-1
	// closing the database
}

// sources are two named data sources and their writers.
type sources struct {
	fx.In
	Orders       *sql.DB        `name:"orders"`
	OrdersWriter *outbox.Writer `name:"orders"`
	Stock        *sql.DB        `name:"stock"`
	StockWriter  *outbox.Writer `name:"stock"`
}

func ExampleNamed() {
	var s sources
	delivered := make(chan string, 2)
	audit := func() outbox.Listener {
		return outbox.Handle(func(_ context.Context, env outbox.Envelope) error {
			delivered <- env.AggregateID
			return nil
		})
	}
	create := outboxfx.WithConfig(outboxfx.Config{CreateSchema: true})
	app := fx.New(
		fx.NopLogger,
		fx.Provide(
			fx.Annotated{Name: "orders", Target: newSQLDB},
			fx.Annotated{Name: "stock", Target: newSQLDB},
		),
		outboxfx.NewModule(outboxfx.Named("orders"), create),
		outboxfx.NewModule(outboxfx.Named("stock"), create),
		outboxfx.AsListener(audit, outboxfx.On("", "Audited"), outboxfx.For("orders", "stock")),
		fx.Invoke(func(in sources) { s = in }),
	)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range []*sqltx.Adapter{must(newAdapter(s.Orders, s.OrdersWriter)), must(newAdapter(s.Stock, s.StockWriter))} {
		err := a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := a.Write(ctx, tx, outbox.Envelope{EventType: "Audited", AggregateID: "a-1", Payload: outbox.RawJSON(`{}`)})
			return err
		})
		if err != nil {
			fmt.Println(err)
		}
		fmt.Println("delivered:", <-delivered)
	}
	if err := app.Stop(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// delivered: a-1
	// delivered: a-1
	// closing the database
	// closing the database
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
