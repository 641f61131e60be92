package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay/webhook"
)

type order struct{ ID, Item string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

// shop is a service with an outbox, and a customer that gets the orders.
type shop struct {
	db      *sql.DB
	outbox  *outbox.Outbox
	adapter *sqltx.Adapter
	hooks   *webhook.Hooks
}

func openShop(ctx context.Context, dir, endpoint string) (*shop, error) {
	db, err := open(dir, "shop")
	if err != nil {
		return nil, err
	}
	s := &shop{db: db}
	if err := s.start(ctx, endpoint); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *shop) start(ctx context.Context, endpoint string) (err error) {
	store, log := sqlstore.SQLite(), slog.New(slog.DiscardHandler)
	_, err = s.db.ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY, item TEXT)")
	if err := errors.Join(err, store.CreateSchema(ctx, s.db)); err != nil {
		return err
	}
	if s.outbox, err = outbox.New(outbox.Config{DB: s.db, Store: store, Logger: log}); err != nil {
		return err
	}
	if s.adapter, err = sqltx.New(s.db, s.outbox.Writer()); err != nil {
		return err
	}
	s.hooks, err = webhook.New(webhook.Config{
		Endpoints: webhook.Static{"tea-lover": {URL: endpoint, Secrets: []webhook.Secret{secret}}},
		Write: func(ctx context.Context, deliveries []outbox.Envelope) error {
			return s.adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := s.adapter.WriteAll(ctx, tx, deliveries)
				return err
			})
		},
		Rules: outbox.Rules{RetryPolicy: outbox.ExponentialBackoff(100*time.Millisecond, time.Second)}, // by default five seconds
		// The customer is on this machine. With customers elsewhere, leave both out.
		AllowHTTP: true, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Logger: log,
	})
	if err != nil {
		return err
	}
	return errors.Join(s.outbox.Register(s.hooks.Bindings(orderPlaced.Kind())...), s.outbox.Start(ctx))
}

func (s *shop) placeOrder(ctx context.Context, o order) error {
	return s.adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?)", o.ID, o.Item); err != nil {
			return err
		}
		_, err := s.adapter.Write(ctx, tx, orderPlaced.Envelope(o.ID, o))
		return err
	})
}

// close closes what is open: the outbox first, which ends the requests in hand.
func (s *shop) close(ctx context.Context) (err error) {
	if s.outbox != nil {
		err = s.outbox.Close(ctx)
	}
	if s.hooks != nil {
		s.hooks.Close()
	}
	return errors.Join(err, s.db.Close())
}

func open(dir, name string) (*sql.DB, error) {
	return sqltx.Open("sqlite", "file:"+filepath.Join(dir, name+".db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
}
