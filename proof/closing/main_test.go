// Package closing closes outboxes on real databases under load, and while their database
// fails, and checks that what Close says is true. Its tests run one after the other, so
// that each can look for goroutines that are left.
package closing_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// longRounds is how often a test closes in each mode if OUTBOX_TEST_LONG is set.
const longRounds = 200

// rounds is how often a test closes.
func rounds(short int) int {
	if os.Getenv("OUTBOX_TEST_LONG") != "" {
		return longRounds
	}
	return short
}

// patience is for what happens soon, on a busy machine.
const patience = time.Minute

// drain is the DrainTimeout of all tests, and bound what Close may take with it: see
// docs/reliability/CLOSING.md. slack is for a busy machine.
const (
	drain = 200 * time.Millisecond
	bound = 4*drain + 7*time.Second
	slack = 20 * time.Second
)

// leakless fails the test if there are goroutines that were not there when it was called.
// Those of connections in a pool are not counted.
func leakless(t *testing.T) (check func()) {
	t.Helper()
	ignored := []goleak.Option{
		goleak.IgnoreCurrent(), goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"),
		goleak.IgnoreTopFunction("github.com/go-sql-driver/mysql.(*mysqlConn).startWatcher.func1"),
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead"),
	}
	return func() {
		t.Helper()
		deadline := time.Now().Add(patience)
		err := goleak.Find(ignored...)
		for err != nil && time.Now().Before(deadline) {
			err = goleak.Find(ignored...) // it tries for a while by itself
		}
		require.NoError(t, err)
	}
}
