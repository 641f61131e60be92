package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The test servers have one version and one setting each, so these tests give the values.

func TestVersionsThatAreTooOldAreFailures(t *testing.T) {
	t.Parallel()
	for version, want := range map[[2]string]Level{
		{"PostgreSQL", "11.22"}: Failure, {"PostgreSQL", "12.0"}: OK, {"PostgreSQL", "18.1 (Debian 18.1-1)"}: OK, {"PostgreSQL", "19beta1"}: OK,
		{"MySQL", "5.7.44"}: Failure, {"MySQL", "8.0.36"}: OK, {"MySQL", "9.1.0"}: OK,
		{"MariaDB", "10.5.27-MariaDB"}: Failure, {"MariaDB", "10.6.1-MariaDB"}: OK, {"MariaDB", "11.4.2-MariaDB"}: OK,
		{"SQLite", "3.34.1"}: Failure, {"SQLite", "3.35.0"}: OK, {"TiDB", "8.0.11-TiDB-v7.5.0"}: Note,
	} {
		p := &patient{}
		p.reportServer(version[0], version[1])
		require.Equal(t, want, p.findings[0].Level, version)
	}
}

func TestABinaryLogOfStatementsIsAFailure(t *testing.T) {
	t.Parallel()
	for values, want := range map[[2]string]Level{
		{"OFF", "STATEMENT"}: OK, {"ON", "STATEMENT"}: Failure, {"ON", "MIXED"}: OK, {"ON", "ROW"}: OK,
	} {
		p := &patient{}
		p.reportBinaryLog(values[0], values[1])
		require.Equal(t, want, p.findings[0].Level, values)
	}
}
