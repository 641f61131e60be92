package writeastore_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// logged is a store that logs each batch of a purge. Everything else is sqlstore's.
type logged struct {
	*sqlstore.Store
	log *slog.Logger
}

func (s logged) Purge(ctx context.Context, db outbox.DB, q outbox.PurgeQuery) (outbox.Purged, error) {
	purged, err := s.Store.Purge(ctx, db, q)
	s.log.InfoContext(ctx, "purged", "rows", purged.Rows, "before", q.Before, "error", err)
	return purged, err
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.RunStore(t, func(t *testing.T) conformance.StoreHarness {
		path := filepath.Join(t.TempDir(), "store.db")
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_txlock=immediate")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		indexed := sqlstore.SQLite(sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex()) // for the optional interfaces
		store := logged{Store: indexed, log: slog.New(slog.DiscardHandler)}
		require.NoError(t, store.CreateSchema(t.Context(), db))
		return conformance.SQLHarness(store, db, conformance.SQLite)
	})
}

func TestAPurgeIsLogged(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	var log bytes.Buffer
	store := logged{Store: sqlstore.SQLite(), log: slog.New(slog.NewTextHandler(&log, nil))}
	require.NoError(t, store.CreateSchema(t.Context(), db))
	_, err = store.Purge(t.Context(), db, outbox.PurgeQuery{Before: time.Now(), Limit: 1})
	require.NoError(t, err)
	require.Contains(t, log.String(), "msg=purged rows=0")
}
