//go:build cgo

package testdb

import _ "github.com/mattn/go-sqlite3" // needs a C compiler

func init() {
	extra = append(extra, Target{
		Name: "sqlite/mattn", Kind: SQLite, driver: "sqlite3",
		params: map[string]string{"_busy_timeout": "30000", "_journal_mode": "WAL", "_synchronous": "OFF", "_txlock": "immediate", "_foreign_keys": "1"},
	})
}
