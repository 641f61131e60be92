package systemtest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
)

// The suites that know PostgreSQL best pass on its newest version too: the store's
// conformance, plans and statements, every adapter's case, and notifications.
func TestPostgreSQL18(t *testing.T) {
	wholeSystem(t)
	const folder = "../../.bin/postgres18/bin"
	if _, err := os.Stat(folder); err != nil {
		t.Fatalf("PostgreSQL 18 is missing: make postgres18 fetches it: %v", err)
	}
	server := startPostgres(t, folder)
	db := open(t, "pgx", postgresDSN(server.address()))
	awaitTrue(t, db, "SELECT current_setting('server_version_num')::int / 10000 = 18")
	cmd := exec.Command("go", "test", "-count=1", "-p=1", "-timeout=30m", "./outbox/sqlstore", "./adapters/sqltx", "./adapters/pgx", "./adapters/pgnotify", "./adapters/pqnotify")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CI=true", testdb.PostgresVar+"="+postgresDSN(server.address()))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
}
