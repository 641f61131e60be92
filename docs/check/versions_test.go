package check_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// drivers are the module of each driver by the name that the pages use.
var drivers = map[string]string{
	"pgx": "github.com/jackc/pgx/v5", "lib/pq": "github.com/lib/pq", "pgdriver": "github.com/uptrace/bun/driver/pgdriver",
	"go-sql-driver/mysql": "github.com/go-sql-driver/mysql", "modernc.org/sqlite": "modernc.org/sqlite", "mattn/go-sqlite3": "github.com/mattn/go-sqlite3",
}

// The row of the drivers names the oldest version of each driver, which the root's go.mod has for
// `make test/floors`, and the version that the other tests ran with.
func TestTheVersionsOfTheDriversAreTheTestedVersions(t *testing.T) {
	t.Parallel()
	newest, oldest := readDocument(t, "code/go.mod"), readDocument(t, "../go.mod")
	for path, row := range map[string]string{"README.md": "| drivers |", "docs/zh-CN/README.md": "| 驱动 |"} {
		_, cells, found := strings.Cut(readDocument(t, "../"+path), row)
		require.True(t, found, "%s has no row %q", path, row)
		cells, _, _ = strings.Cut(cells, "\n")
		supported, tested, _ := strings.Cut(cells, "|")
		for name, module := range drivers {
			want := version(newest, module+" v")
			require.NotEmpty(t, want, module)
			require.Equal(t, want, version(tested, name+" "), "%s: the tested version of %s is that of docs/code/go.mod", path, name)
			want = version(oldest, module+" v")
			require.NotEmpty(t, want, module)
			require.Equal(t, want, version(supported, name+" "), "%s: the oldest version of %s is that of go.mod", path, name)
		}
	}
}

func version(text, before string) string {
	found := regexp.MustCompile(regexp.QuoteMeta(before) + `(\d[\d.]*\d)`).FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}
