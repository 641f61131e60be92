package database

import (
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
)

// Dialector returns GORM's dialector for the pool.
func (db *DB) Dialector() gorm.Dialector {
	switch db.Kind {
	case Postgres:
		return postgres.New(postgres.Config{Conn: db.DB})
	case MySQL:
		return mysql.New(mysql.Config{Conn: db.DB})
	default:
		return sqlite.New(sqlite.Config{Conn: db.DB})
	}
}

// Dialect returns bun's dialect for the database.
func (db *DB) Dialect() schema.Dialect {
	switch db.Kind {
	case Postgres:
		return pgdialect.New()
	case MySQL:
		return mysqldialect.New()
	default:
		return sqlitedialect.New()
	}
}
