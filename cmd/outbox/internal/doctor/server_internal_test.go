package doctor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
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

func TestCommitsThatEndWithThePowerOrNeverAreFound(t *testing.T) {
	t.Parallel()
	for settings, want := range map[[3]string]Level{
		{"on", "on", ""}: OK, {"off", "on", ""}: Warning, {"on", "on", "*"}: Failure, {"on", "remote_apply", "ANY 1 (a, b)"}: Failure,
		{"on", "local", "*"}: OK, {"on", "off", "*"}: OK,
	} {
		p := &patient{}
		p.reportDurable(settings[0], settings[1], settings[2], 0)
		require.Equal(t, want, Worst(p.findings), settings)
	}
	p := &patient{}
	p.reportDurable("on", "on", "*", 1)
	require.Empty(t, p.findings, "the standby is connected")
}

func TestACheckThatFailsIsAFinding(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		run   func(*patient, context.Context) error
		level Level
		seen  string
	}{
		"panics":       {func(*patient, context.Context) error { panic("boom") }, Warning, "the check itself failed: panic: boom"},
		"is forbidden": {func(*patient, context.Context) error { return &pgconn.PgError{Code: "42501", Message: "no"} }, Note, "not checked: "},
		"fails":        {func(*patient, context.Context) error { return errors.New("no such function") }, Warning, "not checked: no such function"},
		"waits": {func(_ *patient, ctx context.Context) error {
			<-ctx.Done()
			return errors.New("canceled by the user")
		}, Failure, "the database did not answer within 1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &patient{Config: Config{Limits: Limits{Check: time.Millisecond}.withDefaults()}}
			if name != "waits" {
				p.Limits.Check = time.Hour
			}
			err := p.examine(t.Context(), check{name: "server", run: test.run})
			require.Equal(t, name == "waits", errors.Is(err, ErrNoAnswer))
			require.Equal(t, test.level, p.findings[0].Level)
			require.Contains(t, p.findings[0].Seen, test.seen)
			require.NotEmpty(t, p.findings[0].WayOut)
		})
	}
}

func TestASmallPacketIsFound(t *testing.T) {
	t.Parallel()
	for packet, want := range map[string]Level{"1048576": Warning, "16777216": OK, "1073741824": OK, "": OK} {
		p := &patient{}
		p.reportVariables(map[string]string{
			"sql_mode": "STRICT_TRANS_TABLES", "character_set_client": "utf8mb4", "character_set_connection": "utf8mb4", "max_allowed_packet": packet,
		})
		require.Equal(t, want, p.findings[0].Level, packet)
	}
}
