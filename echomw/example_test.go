package echomw_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// shop is a database with an outbox.
type shop struct {
	db *sql.DB
	ob *outbox.Outbox
}

func openShop() (s *shop, closeShop func()) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "echomw")
	check(err)
	db, err := sqltx.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	check(err)
	store := sqlstore.SQLite()
	check(store.CreateSchema(ctx, db))
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (item TEXT, quantity INTEGER CHECK (quantity > 0))")
	check(err)
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	check(ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil }))))
	return &shop{db, ob}, func() {
		check(ob.Close(ctx))
		check(db.Close())
		check(os.RemoveAll(dir))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// request sends a request to the app and prints what it answered.
func request(e *echo.Echo, method, path string) {
	recorder := httptest.NewRecorder()
	e.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	fmt.Println(method, path, "→", recorder.Code, strings.TrimSpace(recorder.Body.String()))
}

func ExampleTransaction() {
	shop, closeShop := openShop()
	defer closeShop()

	a, err := sqltx.New(shop.db, shop.ob.Writer())
	check(err)
	e := echo.New()
	e.Use(middleware.Recover(), echomw.Transaction(a))
	e.POST("/orders", func(c echo.Context) error {
		ctx := c.Request().Context() // carries the transaction
		tx, _ := a.TxFrom(ctx)
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (item, quantity) VALUES (?, ?)", c.FormValue("item"), c.FormValue("quantity")); err != nil {
			return err // rolled back; the application's error handler answers
		}
		id, err := shop.ob.Writer().Write(ctx, outbox.Envelope{
			EventID: "event-1", EventType: "OrderPlaced", AggregateType: "Order",
			Payload: outbox.JSON(map[string]string{"item": c.FormValue("item")}),
		})
		if err != nil {
			return err
		}
		err = echomw.OnCommit(c, func(context.Context) { fmt.Println("committed", id) })
		if err != nil {
			return err
		}
		return c.JSON(http.StatusCreated, echo.Map{"event_id": id}) // sent after the commit
	})
	request(e, "POST", "/orders?item=tea&quantity=0")
	request(e, "POST", "/orders?item=tea&quantity=3")
	// Output:
	// POST /orders?item=tea&quantity=0 → 500 {"message":"Internal Server Error"}
	// committed event-1
	// POST /orders?item=tea&quantity=3 → 201 {"event_id":"event-1"}
}

// A login that fails answers 401, and the attempt that it has counted stays.
func ExampleTransactionConfig_ToMiddleware() {
	shop, closeShop := openShop()
	defer closeShop()

	mw, err := echomw.TransactionConfig{
		Transactor: must(sqltx.New(shop.db, shop.ob.Writer())),
		TxOptions:  &sql.TxOptions{Isolation: sql.LevelSerializable},
		RollbackOn: func(_ echo.Context, status int, err error) bool {
			return status != http.StatusUnauthorized && (err != nil || status >= 400)
		},
	}.ToMiddleware()
	check(err)
	e := echo.New()
	e.POST("/login", func(c echo.Context) error {
		check(echomw.OnCommit(c, func(context.Context) { fmt.Println("committed") }))
		return echo.ErrUnauthorized
	}, mw)
	request(e, "POST", "/login")
	// Output:
	// committed
	// POST /login → 401 {"message":"Unauthorized"}
}

// An error handler that explains to clients what to do about a commit of unknown
// outcome.
func ExampleCommitError() {
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		var commit *echomw.CommitError
		switch {
		case c.Response().Committed:
		case errors.As(err, &commit) && errors.Is(err, outbox.ErrOutcomeUnknown):
			_ = c.JSON(http.StatusInternalServerError, echo.Map{"error": "look whether the order is there before you try again"})
		default:
			e.DefaultHTTPErrorHandler(err, c)
		}
	}
	e.POST("/orders", func(echo.Context) error { return &echomw.CommitError{Err: outbox.ErrOutcomeUnknown} })
	request(e, "POST", "/orders")
	// Output:
	// POST /orders → 500 {"error":"look whether the order is there before you try again"}
}

func ExampleHealth() {
	shop, closeShop := openShop()
	defer closeShop()

	e := echo.New()
	e.GET("/healthz", echomw.Health(echomw.HealthConfig{Outbox: shop.ob}))
	request(e, "GET", "/healthz") // before Start
	// Output:
	// GET /healthz → 503 {"status":"unready","database":{"ok":true},"poller":{"ok":false,"problem":"the poller has not read the table yet","last_poll_age_seconds":null},"backlog":{"ok":true,"oldest_due_seconds":0,"due":0,"dead":0}}
}

func ExampleAdmin() {
	shop, closeShop := openShop()
	defer closeShop()

	e := echo.New()
	authenticated := middleware.BasicAuth(func(_, password string, _ echo.Context) (bool, error) {
		return password == "secret", nil
	})
	echomw.Admin(e.Group("/admin/outbox", authenticated), shop.ob, echomw.Access{
		Authorize: func(*http.Request) (string, echomw.Role) { return "ada", echomw.Operate },
	})
	request(e, "POST", "/admin/outbox/dead-letters/replay")
	// Output:
	// POST /admin/outbox/dead-letters/replay → 401 {"message":"Unauthorized"}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// OnCommit is for what must not happen when the transaction rolls back.
func ExampleOnCommit() {
	shop, closeShop := openShop()
	defer closeShop()

	e := echo.New()
	e.POST("/orders", func(c echo.Context) error {
		if err := echomw.OnCommit(c, func(context.Context) { fmt.Println("committed") }); err != nil {
			return err
		}
		return c.String(http.StatusCreated, "placed")
	}, echomw.Transaction(must(sqltx.New(shop.db, shop.ob.Writer()))))
	request(e, "POST", "/orders")
	// Output:
	// committed
	// POST /orders → 201 placed
}

// Operators may replay events without reading them.
func ExampleAccess() {
	shop, closeShop := openShop()
	defer closeShop()

	e := echo.New()
	echomw.Admin(e.Group("/admin/outbox"), shop.ob, echomw.Access{
		Authorize: func(*http.Request) (string, echomw.Role) { return "ada", echomw.Operate },
	})
	request(e, "POST", "/admin/outbox/wake")
	// Output:
	// POST /admin/outbox/wake → 204
}
