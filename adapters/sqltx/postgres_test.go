package sqltx_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// PostgreSQL ends the transaction when it refuses such a statement, and answers
// the COMMIT that follows with a warning alone.
func TestStatementsThatEndATransactionOnPostgreSQL(t *testing.T) {
	t.Parallel()
	targets := slices.DeleteFunc(testdb.Drivers(), func(target testdb.Target) bool { return target.Kind != testdb.Postgres })
	testdb.Each(t, targets, func(t *testing.T, plain *testdb.DB) {
		f := followed(t, plain)
		exec(t, plain, "CREATE TABLE checked (id INT UNIQUE DEFERRABLE INITIALLY DEFERRED)")
		xid := fmt.Sprintf("outbox test %p", plain)
		t.Cleanup(func() { _, _ = plain.ExecContext(context.Background(), "ROLLBACK PREPARED '"+xid+"'") })
		for query, want := range map[string]string{
			"COMMIT":                            "rollback",
			"PREPARE TRANSACTION '" + xid + "'": "rollback", // unless the server allows it
		} {
			f.rec.Reset()
			tx := begin(t, f.db)
			write(t, f.a, tx)
			exec(t, tx, "INSERT INTO checked (id) VALUES (1), (1)")
			_, err := tx.ExecContext(t.Context(), query)
			if err == nil {
				want = "unknown"
			}
			_, writeErr := f.a.Write(t.Context(), tx, event())
			require.ErrorIs(t, writeErr, outbox.ErrNoTransaction, "it would commit by itself")
			_ = tx.Commit()
			f.rec.Eventually(t, want)
			require.Zero(t, written(t, f.db), query)
		}
	})
}
