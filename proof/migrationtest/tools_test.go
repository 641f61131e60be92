package migrationtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/mysql"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

const page = "../../docs/how-to/migrations.md"

// fromPage runs the shell commands of a section of the page, and returns the directory of
// the files that they make.
func fromPage(t *testing.T, section string, kind testdb.Kind) string {
	t.Helper()
	return numberedFromPage(t, section, kind, "0", "1")
}

// numberedFromPage is fromPage without the versions up to have, and with another number of the first file.
func numberedFromPage(t *testing.T, section string, kind testdb.Kind, have, first string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "\n### "+section+"\n")
	require.True(t, ok, section)
	_, rest, ok = strings.Cut(rest, "```sh\n")
	require.True(t, ok, section)
	commands, _, _ := strings.Cut(rest, "```")

	schema, err := filepath.Abs("../../outbox/sqlstore/schema")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "migrations"), 0o700))
	shell := exec.CommandContext(t.Context(), "sh", "-eu", "-c", commands)
	shell.Dir = dir
	shell.Env = append(os.Environ(), "SCHEMA="+schema, "DIALECT="+string(kind), "HAVE="+have, "FIRST="+first)
	output, err := shell.CombinedOutput()
	require.NoError(t, err, string(output))
	return filepath.Join(dir, "migrations")
}

// tool migrates to a version; 0 drops the tables.
type tool func(t *testing.T, to int)

// prove goes up version by version and down again, with a row in the table.
func prove(t *testing.T, db *testdb.DB, store *sqlstore.Store, migrateTo tool) {
	t.Helper()
	ctx := t.Context()
	requireVersion := func(want int) {
		t.Helper()
		got, err := store.SchemaVersion(ctx, db.DB)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	migrateTo(t, 1)
	requireVersion(1)
	require.ErrorContains(t, store.Check(ctx, db.DB, true), "outbox schema migrate")
	write(t, store, db.DB, "e-1")
	for version := 2; version <= sqlstore.SchemaVersion; version++ {
		migrateTo(t, version)
		requireVersion(version)
	}
	require.NoError(t, store.Check(ctx, db.DB, true))

	// What the tool made is what the store would have made.
	from, err := store.Migrate(ctx, db.DB, sqlstore.SchemaVersion)
	require.NoError(t, err)
	require.Equal(t, sqlstore.SchemaVersion, from)
	write(t, store, db.DB, "e-2")
	for version := sqlstore.SchemaVersion - 1; version > 0; version-- {
		migrateTo(t, version)
		requireVersion(version)
	}
	migrateTo(t, sqlstore.SchemaVersion)
	batch, err := store.Poll(ctx, db.DB, outbox.PollQuery{Now: time.Now(), Limit: 10})
	require.NoError(t, err)
	require.Len(t, batch.Envelopes, 2)
	migrateTo(t, 0)
	requireVersion(0)
}

func write(t *testing.T, store *sqlstore.Store, db *sql.DB, id string) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	now := time.Now()
	require.NoError(t, store.Insert(t.Context(), tx, []outbox.Envelope{{
		EventID: id, EventType: "Placed", Payload: outbox.RawJSON("{}"), OccurredAt: now, AvailableAt: now,
	}}, "", time.Time{}))
	require.NoError(t, tx.Commit())
}

func storeOf(t *testing.T, db *testdb.DB, opts ...sqlstore.Option) *sqlstore.Store {
	t.Helper()
	store, err := sqlstore.Detect(t.Context(), db.DB, opts...)
	require.NoError(t, err)
	return store
}

func gooseDialect(kind testdb.Kind) goose.Dialect {
	return map[testdb.Kind]goose.Dialect{
		testdb.Postgres: goose.DialectPostgres, testdb.MySQL: goose.DialectMySQL, testdb.SQLite: goose.DialectSQLite3,
	}[kind]
}

// withGoose is goose with a provider of migrations.
func withGoose(provider *goose.Provider) tool {
	return func(t *testing.T, to int) {
		t.Helper()
		now, err := provider.GetDBVersion(t.Context())
		require.NoError(t, err)
		if int64(to) > now {
			_, err = provider.UpTo(t.Context(), int64(to))
		} else {
			_, err = provider.DownTo(t.Context(), int64(to))
		}
		require.NoError(t, err)
	}
}

func TestGooseTakesTheFiles(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		provider, err := goose.NewProvider(gooseDialect(db.Kind), db.DB, os.DirFS(fromPage(t, "goose", db.Kind)))
		require.NoError(t, err)
		prove(t, db, storeOf(t, db), withGoose(provider))
	})
}

// With another table name, and the indexes of options, goose gets the SQL from the store.
func TestGooseTakesTheStoresMigrations(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store := storeOf(t, db, sqlstore.WithTable("events"), sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex())
		var migrations []*goose.Migration
		for _, m := range store.Migrations() {
			migrations = append(migrations, goose.NewGoMigration(int64(m.Version), runs(m.Up), runs(m.Down)))
		}
		provider, err := goose.NewProvider(gooseDialect(db.Kind), db.DB, nil, goose.WithGoMigrations(migrations...))
		require.NoError(t, err)
		prove(t, db, store, withGoose(provider))
	})
}

// runs runs statements one by one.
func runs(text string) *goose.GoFunc {
	return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		for statement := range strings.SplitSeq(strings.TrimSpace(text), ";\n") {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}}
}

func TestGolangMigrateTakesTheFiles(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Main() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Open(t, target)
			prove(t, db, storeOf(t, db), withGolangMigrate(t, db, fromPage(t, "golang-migrate", db.Kind)))
		})
	}
}

func withGolangMigrate(t *testing.T, db *testdb.DB, dir string) tool {
	t.Helper()
	var driver database.Driver
	var err error
	switch db.Kind {
	case testdb.Postgres:
		driver, err = pgx.WithInstance(db.Reopen(t).DB, &pgx.Config{})
	case testdb.MySQL:
		driver, err = mysql.WithInstance(db.Reopen(t, testdb.Param("multiStatements", "true")).DB, &mysql.Config{})
	case testdb.SQLite:
		driver, err = sqlite.WithInstance(db.Reopen(t).DB, &sqlite.Config{})
	}
	require.NoError(t, err)
	source, err := iofs.New(os.DirFS(dir), ".")
	require.NoError(t, err)
	tool, err := migrate.NewWithInstance("iofs", source, string(db.Kind), driver)
	require.NoError(t, err)
	t.Cleanup(func() {
		sourceErr, driverErr := tool.Close()
		require.NoError(t, errors.Join(sourceErr, driverErr))
	})
	return func(t *testing.T, to int) {
		t.Helper()
		if to == 0 {
			require.NoError(t, tool.Down())
			return
		}
		require.NoError(t, tool.Migrate(uint(to)))
	}
}

// Flyway is not run: the names are what its documentation asks for.
func TestFlywaysFilesHaveItsNames(t *testing.T) {
	t.Parallel()
	for _, kind := range []testdb.Kind{testdb.Postgres, testdb.MySQL, testdb.SQLite} {
		entries, err := os.ReadDir(fromPage(t, "Flyway", kind))
		require.NoError(t, err)
		require.Len(t, entries, 2*sqlstore.SchemaVersion)
		for _, entry := range entries {
			require.Regexp(t, regexp.MustCompile(`^[UV]\d+__[a-z_]+\.sql$`), entry.Name())
		}
	}
}

// A service whose migrations have times as numbers takes the files behind its own.
func TestTheFilesFollowMigrationsThatAreNumberedByTime(t *testing.T) {
	t.Parallel()
	const own, first = 20240301120000, 20260115093059
	add := func(t *testing.T, dir, name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d_orders", own)+name), []byte(text), 0o600))
	}
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		dir := numberedFromPage(t, "goose", db.Kind, "0", strconv.Itoa(first))
		add(t, dir, ".sql", "-- +goose Up\nCREATE TABLE orders (id INT);\n-- +goose Down\nDROP TABLE orders;\n")
		provider, err := goose.NewProvider(gooseDialect(db.Kind), db.DB, os.DirFS(dir))
		require.NoError(t, err)
		_, err = provider.UpTo(t.Context(), own)
		require.NoError(t, err)
		_, err = provider.Up(t.Context())
		require.NoError(t, err)
		require.NoError(t, storeOf(t, db).Check(t.Context(), db.DB, true))
		_, err = provider.DownTo(t.Context(), own)
		require.NoError(t, err)
	})
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		dir := numberedFromPage(t, "golang-migrate", db.Kind, "0", strconv.Itoa(first))
		add(t, dir, ".up.sql", "CREATE TABLE orders (id INT);")
		add(t, dir, ".down.sql", "DROP TABLE orders;")
		migrateTo := withGolangMigrate(t, db, dir)
		migrateTo(t, own)
		migrateTo(t, first+sqlstore.SchemaVersion-1)
		require.NoError(t, storeOf(t, db).Check(t.Context(), db.DB, true))
		migrateTo(t, own)
	})
}

// A service that copied the first version adds the newer ones behind migrations that it has made since.
func TestAnUpgradeCopiesOnlyTheNewVersions(t *testing.T) {
	t.Parallel()
	const first, later = 21, 35
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		dir := numberedFromPage(t, "goose", db.Kind, "0", strconv.Itoa(first))
		for version := 2; version <= sqlstore.SchemaVersion; version++ {
			matches, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%04d_*", first+version-1)))
			require.NoError(t, err)
			require.Len(t, matches, 1)
			require.NoError(t, os.Remove(matches[0]))
		}
		upgrade := numberedFromPage(t, "goose", db.Kind, "1", strconv.Itoa(later))
		entries, err := os.ReadDir(upgrade)
		require.NoError(t, err)
		require.Len(t, entries, sqlstore.SchemaVersion-1)
		for _, entry := range entries {
			require.NoError(t, os.Rename(filepath.Join(upgrade, entry.Name()), filepath.Join(dir, entry.Name())))
		}
		provider, err := goose.NewProvider(gooseDialect(db.Kind), db.DB, os.DirFS(dir))
		require.NoError(t, err)
		_, err = provider.UpTo(t.Context(), first)
		require.NoError(t, err)
		_, err = provider.Up(t.Context())
		require.NoError(t, err)
		now, err := provider.GetDBVersion(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, later+sqlstore.SchemaVersion-2, now)
		require.NoError(t, storeOf(t, db).Check(t.Context(), db.DB, true))
	})
}
