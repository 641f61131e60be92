// Package migrationtest runs the SQL files of the outbox's schema with the migration
// tools goose and golang-migrate. It is a module of its own, so that the library does not
// depend on them.
package migrationtest
