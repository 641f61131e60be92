package internal
import (
 _ "github.com/stretchr/testify/require"
 _ "github.com/jackc/pgx/v5/stdlib"
 _ "github.com/lib/pq"
 _ "github.com/uptrace/bun/driver/pgdriver"
 _ "github.com/go-sql-driver/mysql"
 _ "modernc.org/sqlite"
 _ "github.com/mattn/go-sqlite3"
 _ "go.uber.org/goleak"
)
