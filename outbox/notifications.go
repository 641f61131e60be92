package outbox

import (
	"context"
	"log/slog"

	"github.com/outboxkit/outbox-go/outbox/internal/notify"
)

// channel is the notifier's channel for the table.
type channel struct {
	notifier Notifier
	db       DB
	store    Store
}

func newNotifications(c channel, poller *Poller, log *slog.Logger) *notify.Notifications {
	if poller == nil {
		return notify.New(c, nil, 0, log, ErrClosed)
	}
	return notify.New(c, notified{poller}, poller.opts.Interval, log, ErrClosed)
}

// Notify notifies the processes of the table.
func (c channel) Notify(ctx context.Context) error {
	return c.notifier.Notify(ctx, c.db, c.Table())
}

// Listen listens for notifications of the table.
func (c channel) Listen(ctx context.Context, woken func()) error {
	return c.notifier.Listen(ctx, c.db, c.Table(), woken)
}

// Table is the store's name for the table, which has its schema once the store knows it.
func (c channel) Table() string {
	if s, ok := c.store.(interface{ Table() string }); ok {
		return s.Table()
	}
	return ""
}

// notified is a poller that reads when a notification arrives.
type notified struct{ *Poller }

// Doubt makes the poller ask again for the pauses.
func (n notified) Doubt() { n.doubtPauses() }
