// Package migrationtest runs the SQL files of the outbox's schema with the migration tools goose
// and golang-migrate. migrationtest is a separate module, so that the library does not depend on
// the tools.
package migrationtest
