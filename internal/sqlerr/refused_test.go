package sqlerr_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
)

func TestIsRefused(t *testing.T) {
	t.Parallel()
	state := func(s string) (state [5]byte) { copy(state[:], s); return state }
	for _, err := range []error{
		&pgconn.PgError{Code: "22P05"}, &pgconn.PgError{Code: "22001"}, &pgconn.PgError{Code: "23514"}, &pgconn.PgError{Code: "P0001"},
		&pq.Error{Code: "22P05"}, fmt.Errorf("marking: %w", &pgconn.PgError{Code: "54000"}),
		&mysql.MySQLError{Number: 1366}, &mysql.MySQLError{Number: 1406, SQLState: state("22001")}, &mysql.MySQLError{Number: 3988, SQLState: state("HY000")},
		&mysql.MySQLError{Number: 4025, SQLState: state("23000")}, &mysql.MySQLError{Number: 3819, SQLState: state("HY000")},
		&mysql.MySQLError{Number: 1644, SQLState: state("45000")},
	} {
		require.True(t, sqlerr.IsRefused(err), "%#v", err)
	}
	for _, err := range []error{
		nil, errors.New("check constraint"), &pgconn.PgError{Code: "40P01"}, &pgconn.PgError{Code: "57014"}, &pgconn.PgError{Code: "53100"}, &pgconn.PgError{Code: "25006"},
		&pgconn.PgError{Code: "08006"}, &pgconn.PgError{Code: "54001"}, &mysql.MySQLError{Number: 1205, SQLState: state("HY000")}, &mysql.MySQLError{Number: 1213, SQLState: state("40001")},
		&mysql.MySQLError{Number: 1290}, mysql.ErrInvalidConn,
	} {
		require.False(t, sqlerr.IsRefused(err), "%#v", err)
	}
}
