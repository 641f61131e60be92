// Package glebareztest tests the GORM adapter with github.com/glebarez/sqlite, GORM's dialector for
// SQLite without cgo. The driver of that dialector registers under the same name as the driver of
// modernc.org/sqlite, and a process cannot have both.
package glebareztest
