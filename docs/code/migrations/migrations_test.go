// Package migrations_test holds the Go code of docs/how-to/migrations.md.
package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func Example_fromGo() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:/migrations?vfs=memdb")
	check(err)
	defer db.Close()
	check(migrate(ctx, sqlstore.SQLite(), db))
	// Output:
	// true true
}

func migrate(ctx context.Context, store *sqlstore.Store, db *sql.DB) error {
	if err := store.CreateSchema(ctx, db); err != nil { // creates the tables, or brings them to this build's version
		return err
	}
	from, err := store.Migrate(ctx, db, sqlstore.SchemaVersion) // to a version, up or down
	if err != nil {
		return err
	}
	version, err := store.SchemaVersion(ctx, db) // 0: there are no tables
	if err != nil {
		return err
	}
	migrations := store.Migrations() // the SQL of each version
	fmt.Println(from == version, version == len(migrations))
	return nil
}

// write writes the files of a table of another name.
func write(dir string) (err error) {
	for _, m := range sqlstore.Postgres(sqlstore.WithTable("app.events"), sqlstore.WithKeyIndex()).Migrations() {
		name := fmt.Sprintf("%04d_%s", m.Version, m.Name)
		err = errors.Join(err,
			os.WriteFile(filepath.Join(dir, name+".up.sql"), []byte(m.Up), 0o600),
			os.WriteFile(filepath.Join(dir, name+".down.sql"), []byte(m.Down), 0o600))
	}
	return err
}

func TestEachVersionHasTwoFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, write(dir))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 2*sqlstore.SchemaVersion)
	text, err := os.ReadFile(filepath.Join(dir, "0001_outbox.up.sql"))
	require.NoError(t, err)
	require.Contains(t, string(text), `"app"."events"`)
}
