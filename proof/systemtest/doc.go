// Package systemtest tests the outbox while whole systems fail: a PostgreSQL or MySQL server
// whose standby takes over, MySQL's group replication that loses its primary, a Galera
// cluster that loses a server, PgBouncer in transaction mode, PostgreSQL 18. It has tests
// alone. They start private servers from installed programs, on free ports of the loopback
// interface, and kill them at the end.
//
// The tests take minutes, so `go test ./...` skips them and `make chaos/system` runs
// them; a missing program is then a failure. docs/reliability/SYSTEMS.md says what
// they show.
package systemtest
