package sqlstore_test

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// The files are SQL as they are: for the default table, they hold what the store runs.
func TestEveryVersionHasItsFiles(t *testing.T) {
	t.Parallel()
	for _, kind := range []testdb.Kind{testdb.Postgres, testdb.MySQL, testdb.SQLite} {
		files, err := fs.Glob(os.DirFS("schema"), string(kind)+"/*")
		require.NoError(t, err)
		require.Len(t, files, 2*sqlstore.SchemaVersion)
		store := storeFor(kind)
		require.Len(t, store.Migrations(), sqlstore.SchemaVersion)
		for i, m := range store.Migrations() {
			require.Equal(t, i+1, m.Version)
			for way, text := range map[string]string{"up": m.Up, "down": m.Down} {
				file, err := os.ReadFile(fmt.Sprintf("schema/%s/%04d_%s.%s.sql", kind, m.Version, m.Name, way))
				require.NoError(t, err)
				require.Equal(t, string(file), strings.NewReplacer(`"outbox`, "outbox", `"idx`, "idx", `_event"`, "_event", `_control"`, "_control", `_due"`, "_due", `_done"`, "_done", `_dead"`, "_dead", "`", "").Replace(text))
				require.NotContains(t, text, "{t")
				require.NotEmpty(t, statements(text))
			}
			if m.Version > 1 {
				require.Contains(t, m.Up, fmt.Sprintf(`'{"version":%d,"min_version":`, m.Version))
			}
		}
		for suffix, option := range map[string]sqlstore.Option{"age": sqlstore.WithAgeIndex(), "key": sqlstore.WithKeyIndex(), "tenant": sqlstore.WithTenantIndex(), "search": sqlstore.WithSearchIndex(), "unique": sqlstore.WithUniqueIndex()} {
			up := storeFor(kind, option, option).Migrations()[0].Up
			require.Equal(t, store.Migrations()[0].Up, up[:len(store.Migrations()[0].Up)])
			added := 1
			if suffix == "unique" { // the column, too
				added = 2
			}
			require.Len(t, statements(up), len(statements(store.Migrations()[0].Up))+added)
			require.Contains(t, up, "idx_outbox_event_"+suffix)
		}
	}
}
