package sqlstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// MySQLItself is a store as [Detect] returns it for MySQL.
func MySQLItself() *Store {
	s := newStore(mysql, nil)
	s.locksNow.Store(true)
	return s
}

func TestTheVersionSaysWhetherClaimsSkipLockedRows(t *testing.T) {
	t.Parallel()
	for version, skips := range map[string]bool{
		"MySQL 5.7.44-log": false, "MySQL 8.0.0-dmr": false, "MySQL 8.0.1": true, "MySQL 8.0.40": true, "MySQL 9.7.4-2": true,
		"10.5.23-MariaDB": false, "10.6.0-MariaDB": true, "10.11.19-MariaDB-0+deb12u1": true, "11.8.9-MariaDB": true,
		"5.5.5-10.5.23-MariaDB": false, "5.5.5-10.11.19-MariaDB-log": true,
		"8.0.11-TiDB-v7.5.0": false, "MySQL (proxy)": true, "PostgreSQL 15.20": true, "SQLite 3.45.1": true,
	} {
		require.Equal(t, skips, skipsLocked(version), version)
	}
}
