package sqltx_test

import (
	"context"
	"database/sql/driver"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// timeouts is a server of MySQL whose UPDATE runs into a lock timeout, and which
// ends the transaction over that or does not: innodb_rollback_on_timeout.
type timeouts struct {
	nothing
	rollback bool
}

func (s timeouts) Connect(context.Context) (driver.Conn, error) { return s, nil }

func (s timeouts) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	switch {
	case query == "UPDATE":
		return nil, &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded; try restarting transaction"}
	case s.rollback && query == "RELEASE SAVEPOINT outbox_alive":
		return nil, &mysql.MySQLError{Number: 1305, Message: "SAVEPOINT outbox_alive does not exist"}
	default:
		return driver.ResultNoRows, nil
	}
}

func TestLockTimeoutMayHaveEndedThePlainTransaction(t *testing.T) {
	t.Parallel()
	for _, rollback := range []bool{false, true} {
		db := openWrapped(t, timeouts{rollback: rollback})
		rec := &record{}
		a := sqltx.New(db, newWriter(t, db, "mysql", rec.hook()))
		tx := begin(t, db)
		write(t, a, tx)
		_, err := tx.ExecContext(t.Context(), "UPDATE")
		require.Error(t, err)
		if !rollback {
			write(t, a, tx)
			require.NoError(t, tx.Commit())
			rec.eventually(t, "commit", "commit")
			continue
		}
		_, err = a.Write(t.Context(), tx, event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		require.ErrorContains(t, tx.Commit(), "Lock wait timeout")
		rec.eventually(t, "rollback")
	}
}
