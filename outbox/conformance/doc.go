// Package conformance certifies what plugs into the outbox: [RunStore] runs a
// subtest for every rule that [outbox.Store] states, and [RunAdapter] one for every
// rule of a transaction adapter. [SQLHarness] makes the harness of a store on a
// database/sql database.
package conformance
