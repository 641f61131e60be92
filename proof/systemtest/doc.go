// Package systemtest tests the outbox while whole systems fail: a PostgreSQL or MySQL server whose
// standby takes over, MySQL's group replication that loses the primary, a Galera cluster that loses
// a server, PgBouncer in transaction mode, PostgreSQL 18. The package has only tests. The tests
// start private servers from installed programs, on free ports of the loopback interface, and kill
// the servers at the end.
//
// The tests take minutes, so `go test ./...` skips them and `make chaos/system` runs them; a
// missing program is then a failure. docs/reliability/SYSTEMS.md has the results.
package systemtest
