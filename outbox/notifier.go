package outbox

import (
	"context"
	"log/slog"

	"github.com/outboxkit/outbox-go/outbox/internal/notify"
)

// Notifier carries notifications between the processes of a table. A process that commits an
// event but does not deliver it sends a notification, and the pollers of the processes that listen
// read the table at once, not only at their interval. A notification has no content: a lost
// notification costs the interval, a repeated notification costs a read. Packages pgnotify and
// pqnotify have notifiers for PostgreSQL; on other databases, a store of package sqlstore is a
// notifier.
//
// The outbox notifies after the commit, outside of the caller's transaction, at most once in 20 ms,
// in these cases: the mode is [WriterOnly] or [Ordered]; another process holds the table; under
// [MultiNode] and [OrderedByKey], this process has no room or gives leases back; a process that
// delivers closes, because other processes deliver the events that become due there later. For
// transactions whose end the outbox does not see, the outbox notifies 10 ms, 100 ms and 1 s after
// the write.
//
// An outbox that was never started notifies in these cases before the call that commits returns, for
// at most half a second, and Close notifies of writes whose commit the outbox did not see. A failure
// is logged. [Outbox.Drain] notifies at its end, because other processes deliver what becomes due
// later.
//
// A notifier is safe for concurrent use and may serve several outboxes. A notifier may have a
// method Dialect() string: [New] then refuses a store of another dialect.
type Notifier interface {
	// Notify notifies all processes that listen for the table. db is the pool of the outbox. table
	// is the store's name for the table: with package sqlstore, the name includes the schema in
	// which the outbox found the table.
	Notify(ctx context.Context, db DB, table string) error
	// Listen calls wake once when Listen has begun to listen for the table, and then for each
	// notification; wake does not block and is safe for concurrent use. Listen returns soon after
	// ctx ends, and with an error when it can listen no longer. The outbox then calls Listen again,
	// after 100 ms to 5 s.
	Listen(ctx context.Context, db DB, table string, wake func()) error
}

// channel is the notifier's channel for the table.
type channel struct {
	notifier Notifier
	db       DB
	store    Store
}

func newNotifications(c channel, poller *poller, log *slog.Logger) *notify.Notifications {
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
type notified struct{ *poller }

// Doubt makes the poller ask again for the pauses.
func (n notified) Doubt() { n.doubtPauses() }
