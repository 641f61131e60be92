// Package conformance certifies stores and adapters: [RunStore] runs a subtest for every rule of
// [outbox.Store], and [RunAdapter] for every rule of a transaction adapter. [SQLHarness] makes the
// harness of a store on a database/sql database.
package conformance
