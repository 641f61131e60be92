// Package outbox is the transactional outbox: an event is written into a table
// within the caller's own database transaction and delivered to a listener in
// the process after the commit.
//
// # What it guarantees
//
// An event is delivered if, and only if, the transaction that wrote it commits;
// a savepoint that is rolled back takes its events with it. Delivery is at least
// once: a [Listener] makes what it does idempotent by [Envelope].EventID. Within
// one process an event that is in hand is never delivered a second time at once,
// by either path. An event that fails is tried again by a [RetryPolicy] and in
// the end kept as a [DeadLetter]; nothing is dropped. Memory depends on the
// capacities of the queues, never on the backlog.
//
// # How it works
//
//	transaction:  business rows + Writer ── INSERT ──▶ outbox table
//	after COMMIT: ── hot queue ──▶ worker: interceptors, listener ──▶ completer
//	poller:       due rows ── cold queue ──▶                 (DONE, RETRY, DEAD)
//
// The hot path hands an event to a worker the moment its transaction is known to
// have committed. The [Poller] delivers what the hot path missed: events of a
// process that died, a full queue, delays, retries. Workers take two hot events
// to one cold one. The completer stores outcomes in batches.
//
// # Modes
//
// [SingleNode] is for one process on a table, [MultiNode] for many, which lease
// rows with FOR UPDATE SKIP LOCKED. [Ordered] delivers one event at a time, by
// when they became due and occurred; it, too, is for one process at a time.
// [WriterOnly] leaves the delivery to change data capture.
//
// # A tour
//
// What is written is an [Envelope], a plain value, or comes from a [Topic], which
// binds the payload's type to the event's. [New] puts everything together from a
// [Config]; package sqlstore has the stores for PostgreSQL, MySQL, MariaDB and
// SQLite. Transactions come from an adapter: sqltx for database/sql, outboxbun
// for bun, outboxgorm for GORM; each has Write and WriteAll, which take the
// framework's own transaction value. [Writer] writes into the transaction that a
// context carries. [DeadLetters] shows and replays what was given up,
// [PurgeOptions] deletes what is old, [Outbox.Stats] and [Metrics] tell how it
// goes. [Interceptor] and [WriterHook] are the places for what concerns many
// events. Package outboxtest helps to test code that uses all this.
//
// Everything here imports the standard library alone.
package outbox
