package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// saysOnce checks that no part of an error comes twice: neither an operation nor a cause.
func saysOnce(t *testing.T, what, text string) {
	t.Helper()
	said := map[string]bool{}
	for part := range strings.SplitSeq(strings.ReplaceAll(text, "\n", ": "), ": ") {
		part, _, _ = strings.Cut(strings.TrimSpace(part), " on table ")
		if part != "outbox" {
			require.False(t, said[part], "%s: %q comes twice in %q", what, part, text)
		}
		said[part] = true
	}
}

func TestAnErrorOfADatabaseThatIsAwaySaysEachThingOnce(t *testing.T) {
	t.Parallel()
	for _, away := range []struct {
		driver, dsn, cause string
		store              *sqlstore.Store
	}{
		{"pgx", "postgres://127.0.0.1:1/x?sslmode=disable", "connection refused", sqlstore.Postgres()},
		{"mysql", "tcp(127.0.0.1:1)/x", "connection refused", sqlstore.MySQL()},
		{"sqlite", "file:" + filepath.Join(t.TempDir(), "missing", "x.db"), "unable to open database file", sqlstore.SQLite()},
	} {
		t.Run(away.driver, func(t *testing.T) {
			t.Parallel()
			db, err := sqltx.Open(away.driver, away.dsn)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			kind := outbox.EventKind{EventType: "Said"}
			calls := map[string]func(ctx context.Context, o *outbox.Outbox) error{
				"Start":  func(ctx context.Context, o *outbox.Outbox) error { return o.Start(ctx) },
				"Drain":  func(ctx context.Context, o *outbox.Outbox) error { _, err := o.Drain(ctx, 10); return err },
				"Stats":  func(ctx context.Context, o *outbox.Outbox) error { _, err := o.Stats(ctx); return err },
				"Pause":  func(ctx context.Context, o *outbox.Outbox) error { return o.Pause(ctx, outbox.Pause{Kind: kind}) },
				"Resume": func(ctx context.Context, o *outbox.Outbox) error { return o.Resume(ctx, kind) },
				"ResumeKey": func(ctx context.Context, o *outbox.Outbox) error {
					return o.ResumeKey(ctx, kind, "1")
				},
				"Detect": func(ctx context.Context, _ *outbox.Outbox) error { _, err := sqlstore.Detect(ctx, db); return err },
			}
			for _, mode := range []outbox.Mode{outbox.SingleNode{}, outbox.MultiNode{}, outbox.OrderedByKey{}, outbox.WriterOnly{}} {
				ob, err := outbox.New(outbox.Config{DB: db, Store: away.store, Mode: mode, Logger: quiet})
				require.NoError(t, err)
				if _, only := mode.(outbox.WriterOnly); !only {
					require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(noop))))
				}
				for name, call := range calls {
					err := call(t.Context(), ob)
					require.Error(t, err, name)
					if _, only := mode.(outbox.WriterOnly); only && name == "Drain" {
						continue
					}
					require.ErrorContains(t, err, away.cause, name)
					saysOnce(t, fmt.Sprintf("%s in %T", name, mode), err.Error())
				}
			}
		})
	}
}

// The database goes away while the outbox runs: its pool is closed.
func TestLogLinesOfADatabaseThatWentAwaySayEachThingOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		for _, mode := range []outbox.Mode{
			outbox.MultiNode{},
			outbox.OrderedByKey{},
			outbox.MultiNode{Claim: outbox.ClaimOptions{TenantsInTurn: true}},
			outbox.SingleNode{}, // last: it leaves its hold
		} {
			pool := db.Reopen(t).DB
			store, err := sqlstore.Detect(t.Context(), pool, sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex())
			require.NoError(t, err)
			require.NoError(t, store.CreateSchema(t.Context(), pool))
			var book logbook
			ob, err := outbox.New(outbox.Config{DB: pool, Store: store, Mode: mode, Logger: slog.New(&book)})
			require.NoError(t, err)
			require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(noop))))
			require.NoError(t, ob.Start(t.Context()))
			require.NoError(t, pool.Close())
			require.Eventually(t, func() bool {
				ob.Wake()
				return len(book.about("polling failed")) > 0
			}, time.Minute, 10*time.Millisecond)
			if err := ob.Close(t.Context()); err != nil {
				saysOnce(t, fmt.Sprintf("Close in %T", mode), err.Error())
			}
			for _, line := range book.all() {
				if text, has := line.attrs["error"]; has {
					saysOnce(t, fmt.Sprintf("%T", mode), text.String())
				}
			}
		}
	})
}

// endsAfterCheck is a store that ends the context of Start behind the last statement of the check.
type endsAfterCheck struct {
	*outboxtest.Store
	end context.CancelFunc
}

func (s *endsAfterCheck) memory() *outboxtest.Store { return s.Store }

func (s *endsAfterCheck) Paused(ctx context.Context, db outbox.DB) ([]outbox.Pause, error) {
	list, err := s.Store.Paused(ctx, db)
	s.end()
	return list, err
}

func TestAStartWhoseContextEndsSaysSoOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	e := build(t, outbox.Config{Store: &endsAfterCheck{outboxtest.NewStore(), cancel}, Mode: outbox.MultiNode{}}, noop)
	err := e.Start(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "outbox: starting: context canceled", err.Error())
}
