package cdc

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxkit/outbox-go/internal/logread"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// report begins to report the reader in the control table of each table, over a connection that it closes
// at the end.
func (r *Reader) report(ctx context.Context, tables map[string]bool) (end func()) {
	cfg, err := r.pg.connConfig()
	if err != nil {
		return func() {} // New has read the address
	}
	delete(cfg.RuntimeParams, "replication")
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(1)
	var stores []outbox.Store
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		stores = append(stores, sqlstore.Postgres(sqlstore.WithTable(table)))
	}
	stop := r.out.Report(ctx, logread.Report{
		Owner: "cdc " + r.pg.Slot, DB: db, Stores: stores, Whole: &r.whole, Name: slog.String("slot", r.pg.Slot),
		Lag: func(ctx context.Context) outbox.LogLag {
			var s slot
			if s.scan(db.QueryRowContext(ctx, slotQuery, r.pg.Slot)) != nil {
				return outbox.LogLag{Behind: -1, Kept: -1, Left: -1}
			}
			return s.lag()
		},
	})
	return func() {
		stop()
		_ = db.Close()
	}
}

// lag is the part of a [Lag] that operators see with the nodes.
func (s *slot) lag() outbox.LogLag {
	lag := outbox.LogLag{Behind: s.behind, Kept: s.kept, Left: -1}
	if s.left != nil {
		lag.Left = *s.left
	}
	return lag
}
