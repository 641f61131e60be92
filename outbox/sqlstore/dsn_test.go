package sqlstore_test

import (
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// TestMain runs the package's tests far from UTC, so that loc=Local in a DSN has
// an effect and a time that is read or written as local shows.
func TestMain(m *testing.M) {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		panic(err)
	}
	time.Local = shanghai //nolint:gosmopolitan // that is the point
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := goleak.Find(goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener")); err != nil {
		panic(err)
	}
}

// A store is right whatever the user's DSN says.
func TestConformanceUnderEveryDSN(t *testing.T) {
	t.Parallel()
	main, drivers := testdb.Main(), testdb.Drivers()
	postgres, mysql, sqlite := main[0], main[1], main[2]
	for name, tc := range map[string]struct {
		target testdb.Target
		params map[string]string
	}{
		"mysql parseTime, UTC, strict, found rows": {mysql, map[string]string{"parseTime": "true", "loc": "UTC", "clientFoundRows": "true", "sql_mode": "%27TRADITIONAL%2CANSI_QUOTES%27"}},
		"mysql parseTime, zone, not strict":        {mysql, map[string]string{"parseTime": "true", "loc": "Local", "time_zone": "%27-05%3A00%27", "sql_mode": "%27%27", "interpolateParams": "true"}},
		"mysql local, '' is NULL":                  {mysql, map[string]string{"loc": "Local", "sql_mode": "%27EMPTY_STRING_IS_NULL%2CSTRICT_TRANS_TABLES%27"}},
		"mysql local, '' is NULL, interpolated":    {mysql, map[string]string{"loc": "Local", "sql_mode": "%27EMPTY_STRING_IS_NULL%2CSTRICT_TRANS_TABLES%27", "interpolateParams": "true"}},
		"postgres pq, binary, zone":                {named(drivers, "postgres/pq"), map[string]string{"binary_parameters": "yes", "timezone": "Asia/Kolkata"}},
		"postgres pgx, exec mode, session zone":    {postgres, map[string]string{"default_query_exec_mode": "exec", "timezone": "America/New_York"}},
		"postgres session zone":                    {postgres, map[string]string{"timezone": "America/New_York", "datestyle": "SQL,DMY"}}, // in exec mode pgx cannot read that style
		"sqlite times as the driver will":          {sqlite, map[string]string{"_inttotime": "1", "_texttotime": "1", "_time_format": "sqlite"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(tc.params["sql_mode"], "EMPTY_STRING_IS_NULL") && !testdb.Open(t, tc.target).IsMariaDB(t) {
				t.Skip("MySQL has no such sql_mode; MariaDB has")
			}
			var opts []testdb.Option
			for key, value := range tc.params {
				opts = append(opts, testdb.Param(key, value))
			}
			certify(t, tc.target, opts...)
		})
	}
}

func named(targets []testdb.Target, name string) testdb.Target {
	for _, target := range targets {
		if target.Name == name {
			return target
		}
	}
	panic("no target " + name)
}
