package outbox_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// A service whose table is missing does not start, and says what to do.
func TestStartChecksTheTable(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		for name, mode := range map[string]outbox.Mode{
			"single node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}, "ordered": outbox.Ordered{}, "writer only": outbox.WriterOnly{},
		} {
			ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: mode, Logger: quiet})
			require.NoError(t, err)
			err = ob.Start(t.Context())
			for _, part := range []string{"outbox: checking the database", "outbox_event", "CreateSchema", "create-schema: true", "outbox/sqlstore/schema/"} {
				require.ErrorContains(t, err, part, name)
			}
		}
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet})
		require.NoError(t, err)
		require.Error(t, ob.Start(t.Context()))
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		require.NoError(t, ob.Start(t.Context()), "after it was mended")
		require.NoError(t, ob.Close(t.Context()))
	})
}

// A Drain that cannot begin says so once: it does not count the events that are left.
func TestDrainSaysOnceThatTheTableIsMissing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}} {
			ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: mode, Logger: quiet})
			require.NoError(t, err)
			require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(noop))))
			got, err := ob.Drain(t.Context(), 10)
			require.Equal(t, outbox.Drained{}, got, name)
			require.Error(t, err, name)
			require.Equal(t, 1, strings.Count(err.Error(), "create the tables"), "%s: %v", name, err)
		}
	})
}

// Under these settings the outbox's own statements fail, or have no effect.
func TestStartRefusesASessionInWhichNothingCanBeStored(t *testing.T) {
	t.Parallel()
	const readOnly = "the server or the session is read-only: give the outbox the address of the primary"
	for kind, settings := range map[int]map[testdb.Option]string{
		0: {testdb.Param("default_transaction_read_only", "on"): readOnly},
		1: {testdb.Param("autocommit", "0"): "autocommit is off", testdb.Param("completion_type", "1"): "completion_type is CHAIN", testdb.Param("transaction_read_only", "1"): readOnly},
		2: {testdb.Param("mode", "ro"): readOnly, testdb.Param("_pragma", "query_only(1)"): readOnly},
	} {
		db := testdb.Open(t, testdb.Main()[kind])
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		for setting, wayOut := range settings {
			if setting == testdb.Param("transaction_read_only", "1") && db.IsMariaDB(t) {
				setting = testdb.Param("tx_read_only", "1") // its name before 11.1
			}
			for _, mode := range []outbox.Mode{outbox.SingleNode{}, outbox.MultiNode{}, outbox.WriterOnly{}} {
				ob, err := outbox.New(outbox.Config{DB: db.Reopen(t, setting).DB, Store: store, Mode: mode, Logger: quiet})
				require.NoError(t, err)
				require.ErrorContains(t, ob.Start(t.Context()), wayOut, "%v", setting)
			}
		}
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.MultiNode{}, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, ob.Start(t.Context()))
		require.NoError(t, ob.Close(t.Context()))
	}
}

// checked is a store that knows whether Start asked for a database that takes claims.
type checked struct {
	*outboxtest.Store
	claims bool
}

func (s *checked) memory() *outboxtest.Store { return s.Store }

func (s *checked) Check(ctx context.Context, db outbox.DB, claims bool) error {
	s.claims = claims
	return s.Store.Check(ctx, db, claims)
}

// In every mode that delivers, rows that are retried get leases.
func TestStartAsksForADatabaseThatTakesClaims(t *testing.T) {
	t.Parallel()
	listener := func(context.Context, outbox.Envelope) error { return nil }
	for _, mode := range []outbox.Mode{outbox.SingleNode{}, outbox.Ordered{}, outbox.MultiNode{}, outbox.OrderedByKey{}} {
		store := &checked{Store: outboxtest.NewStore()}
		require.NoError(t, start(t, outbox.Config{Store: store, Mode: mode}, listener).Close(t.Context()))
		require.True(t, store.claims, "%T", mode)
	}
	store := &checked{Store: outboxtest.NewStore()}
	require.NoError(t, start(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil).Close(t.Context()))
	require.False(t, store.claims, "a process that only writes claims nothing")
}
