package writeastore_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// frugal is a store that refuses large payloads. Everything else is sqlstore's.
type frugal struct {
	*sqlstore.Store
	maxPayload int // bytes
}

func (s frugal) CheckEnvelope(env outbox.Envelope) error {
	if n := env.Payload.Len(); n > s.maxPayload {
		return &outbox.FieldError{
			Field:   "Envelope.Payload",
			Problem: fmt.Sprintf("has %d bytes; this service writes at most %d: store the document and write its id", n, s.maxPayload),
		}
	}
	return s.Store.CheckEnvelope(env)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.RunStore(t, func(t *testing.T) conformance.StoreHarness {
		path := filepath.Join(t.TempDir(), "store.db")
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_txlock=immediate")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		indexed := sqlstore.SQLite(sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex()) // for the optional interfaces
		store := frugal{Store: indexed, maxPayload: 64 << 10}
		require.NoError(t, store.CreateSchema(t.Context(), db))
		return conformance.SQLHarness(store, db, conformance.SQLite)
	})
}

func TestALargePayloadIsRefused(t *testing.T) {
	t.Parallel()
	store := frugal{Store: sqlstore.SQLite(), maxPayload: 10}
	source := new(sql.DB)
	writer, err := outbox.NewWriter(outbox.WriterConfig{Store: store, Source: source})
	require.NoError(t, err)
	ctx := outboxtest.NewScope(source).Context(context.Background())
	_, err = writer.Write(ctx, outbox.Envelope{EventType: "Large", Payload: outbox.JSON(strings.Repeat("x", 10))})
	require.ErrorIs(t, err, outbox.ErrInvalidEnvelope)
	require.ErrorContains(t, err, "store the document")
}
