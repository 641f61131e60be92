package main_test

import (
	"net/url"
	"os"
	"os/exec"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// The sample checks its own results.
func TestSample(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]func(t *testing.T) []string{
		"two files": func(*testing.T) []string { return nil },
		"two servers": func(t *testing.T) []string {
			config, err := mysql.ParseDSN(testdb.Open(t, testdb.Main()[1]).DSN)
			require.NoError(t, err)
			inventory := url.URL{Scheme: "mysql", Host: config.Addr, Path: "/" + config.DBName, User: url.UserPassword(config.User, config.Passwd)}
			return []string{"ORDERS_URL=" + testdb.Open(t, testdb.Main()[0]).DSN, "INVENTORY_URL=" + inventory.String()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "go", "run", ".")
			cmd.Env = append(os.Environ(), env(t)...)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Regexp(t, `teapot +placed +placed +true +OrderPlaced, StockReserved`, string(out))
			require.Regexp(t, `unicorn +sold out +cancelled +false +OrderCancelled, OrderPlaced`, string(out))
		})
	}
}

func TestAMissingDatabaseIsExplained(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "run", ".")
	cmd.Env = append(os.Environ(), "INVENTORY_URL=mysql://root@127.0.0.1:1/none")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "the data source inventory: connecting to mysql://127.0.0.1:1/none")
}
