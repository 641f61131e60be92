package sqlerr_test

import (
	"fmt"
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
	require.False(t, sqlerr.IsDeadlock(&mysql.MySQLError{Number: 1205}))
	require.True(t, sqlerr.IsDeadlock(&pgconn.PgError{Code: "40P01"}))
	require.True(t, sqlerr.IsDeadlock(&pgconn.PgError{Code: "40001"}))
	require.False(t, sqlerr.IsDeadlock(&pgconn.PgError{Code: "23505"}))
	require.False(t, sqlerr.IsDeadlock(nil))
}
