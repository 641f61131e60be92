package txscope_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// fieldError is like the error of bun's pgdriver, whose fields cannot be set.
type fieldError struct{ code string }

func (e fieldError) Error() string { return "ERROR " + e.code }

func (e fieldError) Field(k byte) string {
	if k == 'C' {
		return e.code
	}
	return ""
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want txscope.End
	}{
		{nil, txscope.Committed},
		{&pgconn.PgError{Code: "23503"}, txscope.RolledBack},
		{&pgconn.PgError{Code: "40001"}, txscope.RolledBack},
		{&pgconn.PgError{Code: "25P02"}, txscope.RolledBack},
		{&pgconn.PgError{Code: "08006"}, txscope.Unknown},
		{&pgconn.PgError{Code: "57P01"}, txscope.Unknown},
		{&pgconn.PgError{Code: "40003"}, txscope.Unknown},
		{fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: "23505"}), txscope.RolledBack},
		{errors.Join(io.EOF, &pgconn.PgError{Code: "23505"}), txscope.RolledBack},
		{pgx.ErrTxCommitRollback, txscope.RolledBack},
		{&pq.Error{Code: "23503"}, txscope.RolledBack},
		{&pq.Error{Code: "57P02"}, txscope.Unknown},
		{pq.ErrInFailedTransaction, txscope.RolledBack},
		{fieldError{"23503"}, txscope.RolledBack},
		{fieldError{"57P03"}, txscope.Unknown},
		{fieldError{""}, txscope.Unknown},
		{&mysql.MySQLError{Number: 1213}, txscope.RolledBack},
		{&mysql.MySQLError{Number: 1290}, txscope.RolledBack},
		{&mysql.MySQLError{Number: 3101}, txscope.RolledBack},
		{&mysql.MySQLError{Number: 3100}, txscope.RolledBack},
		{&mysql.MySQLError{Number: 1180, Message: "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT"}, txscope.RolledBack},
		{&mysql.MySQLError{Number: 1180, Message: "Got error 5 - 'Input/output error' during COMMIT"}, txscope.Unknown},
		{&mysql.MySQLError{Number: 1053}, txscope.Unknown},
		{&mysql.MySQLError{Number: 1927}, txscope.Unknown},
		{mysql.ErrInvalidConn, txscope.Unknown},
		{driver.ErrBadConn, txscope.Unknown},
		{sql.ErrTxDone, txscope.Unknown},
		{sql.ErrConnDone, txscope.Unknown},
		{io.ErrUnexpectedEOF, txscope.Unknown},
		{context.DeadlineExceeded, txscope.Unknown},
	} {
		require.Equal(t, tt.want, txscope.Classify(tt.err), "%T %v", tt.err, tt.err)
	}
}
