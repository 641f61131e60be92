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

// serverError is an error of MySQL, as drivers have it.
type serverError struct{ Number uint16 }

func (e *serverError) Error() string { return "a server's error" }

// A transaction that began before another process migrated the table cannot read the table.
func TestATableThatAnotherProcessChangesIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1213, tableChanged} {
		for fails, want := range map[int]bool{0: true, 1: true, deadlockTries - 1: true, deadlockTries: false} {
			tries := 0
			_, err := MySQLItself().changed(t.Context(), func() (int, error) {
				if tries++; tries <= fails {
					return 0, &serverError{number}
				}
				return 1, nil
			})
			require.Equal(t, want, err == nil, "%d: %d failures", number, fails)
			require.Equal(t, min(fails+1, deadlockTries), tries)
		}
	}
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
