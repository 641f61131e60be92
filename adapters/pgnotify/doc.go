// Package pgnotify wakes the pollers of other processes on PostgreSQL, with LISTEN and NOTIFY
// through pgx. An event that another process has to deliver then reaches this process within
// milliseconds, instead of within the poll interval.
//
//	notifier, err := pgnotify.New(db)
//	…
//	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.MultiNode{}, Notifier: notifier})
//
// A process that delivers keeps a connection open to listen, beside its pool. A process in the mode
// [outbox.WriterOnly] only sends, through the outbox's pool.
//
// Listening needs a dedicated session on the server, so it does not work through a pooler in
// transaction mode, such as PgBouncer's. The outbox then logs once that notifications do not
// arrive, and works with the poll interval. Give [FromDSN] an address that leads to the server past
// the pooler; notifications are sent through any pooler.
package pgnotify
