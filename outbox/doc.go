// Package outbox is a transactional outbox. The caller writes an event into a table
// within its own database transaction. After the commit, a worker of the process
// delivers the event to a listener.
//
// # Guarantees
//
// An event is delivered if, and only if, the transaction that wrote it commits.
// Rolling back a savepoint discards its events. Delivery is at least once: make each
// [Listener] idempotent by [Envelope].EventID. While a process has an event in hand,
// neither path delivers it a second time there. A failed event is retried by a
// [RetryPolicy] and, after the last attempt, kept as a [DeadLetter]; no event is
// dropped. Memory depends on the capacities of the queues, never on the backlog.
//
// # How it works
//
//	transaction:  business rows + Writer ── INSERT ──▶ outbox table
//	after COMMIT: ── hot queue ──▶ worker: interceptors, listener ──▶ completer
//	poller:       due rows ── cold queue ──▶                 (DONE, RETRY, DEAD)
//
// The hot path queues an event for a worker inside the COMMIT call, after the database
// has confirmed the commit. The poller delivers the events that the hot path missed:
// after a crash, with a full queue, delayed events, retries. Workers take two hot events
// for each cold event. The completer stores outcomes in batches.
//
// # Modes
//
// [SingleNode] is for one process on a table, [MultiNode] for many, which lease
// rows with FOR UPDATE SKIP LOCKED. [OrderedByKey] delivers the events of one
// aggregate in order, on many processes. [Ordered] delivers one event at a time,
// ordered by when it became due and when it occurred; it is for one process at a time.
// [WriterOnly] leaves the delivery to change data capture.
//
// # A tour
//
// You write an [Envelope], a plain value. A [Topic] makes envelopes, and binds the
// payload's type to the event's. [New] makes an outbox from a [Config]; package
// sqlstore has the stores for PostgreSQL, MySQL, MariaDB and SQLite. An adapter
// connects the outbox to transactions: sqltx for database/sql, outboxpgx for pgx,
// outboxbun for bun, outboxgorm for GORM. Each has Write and WriteAll, which take the
// framework's own transaction value. [Writer] writes into the transaction that a context carries.
// [DeadLetters] lists and replays dead events, [PurgeOptions] deletes old rows,
// [Outbox.Stats] and [Metrics] show the state. [Interceptor] and [WriterHook] are for
// concerns that many events share. [Outbox.Pause] and [Rules] hold back a kind of event,
// [BatchListener] delivers events in batches, and [Named] gives an event several
// listeners. Package relay publishes events to a message broker. Package outboxtest
// helps to test your code.
//
// The package depends only on the standard library.
package outbox
