package sqltx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// A driver that cannot write while rows are unread may call the connection bad. It is well, and
// the error says what to do.
func TestWriteWhileRowsAreUnread(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Servers(), func(t *testing.T, followed *testdb.DB) {
		createTable(t, followed.DB)
		f := newFixture(t, followed.DB, string(followed.Kind))
		tx := begin(t, f.db)
		rows, err := tx.QueryContext(t.Context(), "SELECT REPEAT('x', 100000) UNION ALL SELECT REPEAT('y', 100000) UNION ALL SELECT REPEAT('z', 100000)")
		require.NoError(t, err)
		require.True(t, rows.Next())
		_, err = f.a.Write(t.Context(), tx, event())
		_ = rows.Close()
		if err != nil { // pgdriver reads the rows; lib/pq before 1.12 has the last text
			require.Regexp(t, "rows are unread|already a query being processed|unexpected Parse response", err)
		}
	})
}
