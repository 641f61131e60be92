// Package glebareztest tests the GORM adapter with github.com/glebarez/sqlite,
// GORM's dialector for SQLite without cgo. Its driver registers under the name
// that the one of modernc.org/sqlite has, and two such cannot be in one process.
package glebareztest
