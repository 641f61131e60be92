package sqlerr_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
)

func TestIsDeadlock(t *testing.T) {
	t.Parallel()
	require.True(t, sqlerr.IsDeadlock(&mysql.MySQLError{Number: 1213}))
	require.True(t, sqlerr.IsDeadlock(fmt.Errorf("update: %w", &mysql.MySQLError{Number: 1213})))
	require.True(t, sqlerr.IsDeadlock(&mysql.MySQLError{Number: 3101}))
	require.True(t, sqlerr.IsDeadlock(&mysql.MySQLError{Number: 1180, Message: "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT"}))
	require.False(t, sqlerr.IsDeadlock(&mysql.MySQLError{Number: 1180, Message: "Got error 5 - 'Input/output error' during COMMIT"}))
	require.False(t, sqlerr.IsDeadlock(&mysql.MySQLError{Number: 3100}))
	require.False(t, sqlerr.IsDeadlock(&mysql.MySQLError{Number: 1205}))
	require.True(t, sqlerr.IsDeadlock(&pgconn.PgError{Code: "40P01"}))
	require.True(t, sqlerr.IsDeadlock(&pgconn.PgError{Code: "40001"}))
	require.False(t, sqlerr.IsDeadlock(&pgconn.PgError{Code: "23505"}))
	require.False(t, sqlerr.IsDeadlock(nil))
}

func TestIsUnreachable(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&net.OpError{Op: "dial", Err: errors.New("connection refused")},
		&net.DNSError{Err: "no such host", IsNotFound: true},
		fmt.Errorf("checking: %w", driver.ErrBadConn), mysql.ErrInvalidConn, io.EOF, context.DeadlineExceeded,
		&pgconn.PgError{Code: "57P03"}, &pgconn.PgError{Code: "53300"}, &pgconn.PgError{Code: "08006"},
		&mysql.MySQLError{Number: 1040}, &mysql.MySQLError{Number: 1053},
	} {
		require.True(t, sqlerr.IsUnreachable(err), err)
	}
	for _, err := range []error{
		nil, errors.New("no table"), context.Canceled, sql.ErrConnDone,
		&pgconn.PgError{Code: "28P01"}, &pgconn.PgError{Code: "3D000"}, &mysql.MySQLError{Number: 1045},
		errors.Join(&net.OpError{Op: "dial", Err: errors.New("connection refused")}, &pgconn.PgError{Code: "28P01"}),
	} {
		require.False(t, sqlerr.IsUnreachable(err), err)
	}
}
