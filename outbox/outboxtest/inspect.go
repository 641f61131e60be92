package outboxtest

import (
	"context"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// FindEvents implements [outbox.Store].
func (s *Store) FindEvents(ctx context.Context, db outbox.DB, q outbox.EventQuery) (outbox.EventPage, error) {
	panic("not built")
}

// FindEvent implements [outbox.Store].
func (s *Store) FindEvent(ctx context.Context, db outbox.DB, eventID string) (outbox.EventRow, error) {
	panic("not built")
}

// Throughput implements [outbox.Store].
func (s *Store) Throughput(ctx context.Context, db outbox.DB, since time.Time) (outbox.Throughput, error) {
	panic("not built")
}

// Announce implements [outbox.Store].
func (s *Store) Announce(ctx context.Context, db outbox.DB, node outbox.Node, d time.Duration) error {
	panic("not built")
}

// Withdraw implements [outbox.Store].
func (s *Store) Withdraw(ctx context.Context, db outbox.DB, owner string) error {
	panic("not built")
}

// Nodes implements [outbox.Store].
func (s *Store) Nodes(ctx context.Context, db outbox.DB) ([]outbox.Node, error) {
	panic("not built")
}
