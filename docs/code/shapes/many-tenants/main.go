// The program of docs/shapes/many-tenants.md: a service with a database for each tenant.
package main

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shapes/service"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/tenants"
)

type manager = tenants.Manager[*sqltx.Adapter]

// newManager makes the outboxes of the tenants. addressOf is the address of a tenant's database.
func newManager(addressOf func(tenant string) string) (*manager, error) {
	workers := outbox.NewSharedWorkers(32) // for the listeners of all tenants
	return tenants.New(tenants.Config[*sqltx.Adapter]{
		Open: func(ctx context.Context, tenant string) (opened tenants.Tenant[*sqltx.Adapter], err error) {
			db, err := sqltx.Open("pgx", addressOf(tenant))
			if err != nil {
				return opened, err
			}
			db.SetMaxOpenConns(4)
			opened.Close = db.Close
			opened.Outbox, opened.Value, err = newOutbox(ctx, db, workers)
			if err != nil {
				err = errors.Join(err, db.Close())
			}
			return opened, err
		},
	})
}

// orders passes a request of a tenant to the tenant's database.
func orders(m *manager) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := m.Use(r.Context(), r.Header.Get("Tenant"), func(a *sqltx.Adapter) error {
			service.Orders(a).ServeHTTP(w, r)
			return nil
		})
		if err != nil { // no such tenant, or the database is away
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

func newOutbox(ctx context.Context, db *sql.DB, workers *outbox.SharedWorkers) (*outbox.Outbox, *sqltx.Adapter, error) {
	if err := service.CreateTables(ctx, db); err != nil {
		return nil, nil, err
	}
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(),
		Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{SharedWorkers: workers}},
	})
	if err != nil {
		return nil, nil, err
	}
	a, err := sqltx.New(db, ob.Writer())
	return ob, a, errors.Join(err, ob.Register(service.OrderPlaced.Listen(service.SendMail)))
}

// serve runs until ctx ends. Call m.Set again when tenants come and go.
func serve(ctx context.Context, m *manager, l net.Listener, names ...string) error {
	err := m.Set(ctx, names...)
	if err == nil {
		err = service.Serve(ctx, l, orders(m))
	}
	return errors.Join(err, m.Close(context.WithoutCancel(ctx)))
}

func main() {
	service.Main(func(ctx context.Context, _ *sql.DB) error {
		m, err := newManager(func(tenant string) string {
			return strings.ReplaceAll(os.Getenv("TENANT_URL"), "TENANT", tenant)
		})
		if err != nil {
			return err
		}
		return serve(ctx, m, service.Listen(ctx, "8080"), os.Args[1:]...)
	})
}
