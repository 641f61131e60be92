package echomw_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// healthOf asks an app for its health.
func healthOf(t *testing.T, a *app) (status int, answer map[string]map[string]any) {
	t.Helper()
	got := a.send("GET", "/healthz")
	var all map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.body), &all), got.body)
	require.Equal(t, map[int]string{200: "ready", 503: "unready"}[got.StatusCode], all["status"])
	require.Equal(t, "no-store", got.Header.Get("Cache-Control"))
	answer = map[string]map[string]any{}
	for name, check := range all {
		if fields, ok := check.(map[string]any); ok {
			answer[name] = fields
		}
	}
	return got.StatusCode, answer
}

func newOutbox(t *testing.T, cfg outbox.Config) *outbox.Outbox {
	t.Helper()
	cfg.Logger = quiet
	ob, err := outbox.New(cfg)
	require.NoError(t, err)
	require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil }))))
	t.Cleanup(func() { _ = ob.Close(context.Background()) }) //nolint:usetesting // it has ended by then.
	return ob
}

func TestHealthOnEveryDatabase(t *testing.T) {
	t.Parallel()
	stores := map[testdb.Kind]outbox.Store{testdb.Postgres: sqlstore.Postgres(), testdb.MySQL: sqlstore.MySQL(), testdb.SQLite: sqlstore.SQLite()}
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		store := stores[db.Kind].(*sqlstore.Store)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		ob := newOutbox(t, outbox.Config{DB: db.DB, Store: store})
		a := newAppOn(t, &app{db: db.DB})
		a.GET("/healthz", echomw.Health(echomw.HealthConfig{Outbox: ob}))

		status, answer := healthOf(t, a)
		require.Equal(t, 503, status, "it has not started")
		require.Equal(t, true, answer["database"]["ok"])
		require.Equal(t, "the poller has not read the table yet", answer["poller"]["problem"])
		require.Nil(t, answer["poller"]["last_poll_age_seconds"])

		require.NoError(t, ob.Start(t.Context()))
		require.Eventually(t, func() bool { status, answer = healthOf(t, a); return status == 200 }, 20*time.Second, 5*time.Millisecond)
		require.InDelta(t, 0, answer["poller"]["last_poll_age_seconds"], 5)
		require.Equal(t, map[string]any{"ok": true, "oldest_due_seconds": 0.0, "due": 0.0, "dead": 0.0}, answer["backlog"])

		require.NoError(t, db.Close())
		var log bytes.Buffer
		a.Logger.SetOutput(&log) // at the level that Echo has by default
		status, answer = healthOf(t, a)
		require.Equal(t, 503, status)
		require.Equal(t, map[string]map[string]any{"database": {"ok": false, "problem": "the database returned an error"}}, answer,
			"nothing of what the database said")
		require.Contains(t, log.String(), "the health check could not query the database: ")
		require.Contains(t, log.String(), "sql: database is closed")
	})
}

// moodyStore can be made to fail or to hang.
type moodyStore struct {
	*outboxtest.Store
	polls, hangs atomic.Bool
}

func (m *moodyStore) Stats(ctx context.Context, db outbox.DB, now time.Time, paused []outbox.EventKind) (outbox.StoreStats, error) {
	if m.hangs.Load() {
		<-ctx.Done()
		return outbox.StoreStats{}, ctx.Err()
	}
	return m.Store.Stats(ctx, db, now, paused)
}

func (m *moodyStore) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if !m.polls.Load() {
		return outbox.Batch{}, errors.New("a poll that the test lets fail")
	}
	return m.Store.Poll(ctx, db, q)
}

func TestHealthBounds(t *testing.T) {
	t.Parallel()
	store := &moodyStore{Store: outboxtest.NewStore()}
	store.polls.Store(true)
	ob := newOutbox(t, outbox.Config{DB: store.DB(), Store: store, Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Millisecond}}})
	transactor := outboxtest.NewTransactor(store.DB())
	old := adaptertest.Event()
	old.OccurredAt = time.Now().Add(-time.Hour)
	healthy := func(cfg echomw.HealthConfig) (int, map[string]map[string]any) {
		cfg.Outbox = ob
		a := newAppOn(t, &app{})
		a.GET("/healthz", echomw.Health(cfg))
		return healthOf(t, a)
	}
	status, answer := healthy(echomw.HealthConfig{MaxPollDelay: echomw.NoBound})
	require.Equal(t, 200, status, "the check is off")
	require.Nil(t, answer["poller"]["last_poll_age_seconds"])

	require.NoError(t, outbox.InTx(t.Context(), transactor, func(ctx context.Context) error {
		_, err := ob.Writer().Write(ctx, old)
		return err
	}))
	status, answer = healthy(echomw.HealthConfig{MaxPollDelay: echomw.NoBound, MaxDueAge: 5 * time.Minute})
	require.Equal(t, 503, status)
	require.Equal(t, "the oldest due event has been due for more than 5m0s", answer["backlog"]["problem"])
	require.InDelta(t, 3600, answer["backlog"]["oldest_due_seconds"], 60)
	for _, bound := range []time.Duration{0, 2 * time.Hour, -1} {
		status, _ = healthy(echomw.HealthConfig{MaxPollDelay: echomw.NoBound, MaxDueAge: bound})
		require.Equal(t, 200, status, "a backlog does not make a node unready, unless it is asked for")
	}

	limit := func(d time.Duration) {
		kind := outbox.EventKind{AggregateType: old.AggregateType, EventType: old.EventType}
		require.NoError(t, store.Announce(t.Context(), store.DB(), outbox.Node{Owner: "other", Mode: "multi-node", MaxDueAges: []outbox.KindAge{{Kind: kind, MaxDueAge: d}}}, time.Hour))
	}
	limit(24 * time.Hour)
	status, _ = healthy(echomw.HealthConfig{MaxPollDelay: echomw.NoBound, MaxDueAge: 5 * time.Minute})
	require.Equal(t, 200, status, "the kind may be due for a day")
	limit(6 * time.Second)
	status, answer = healthy(echomw.HealthConfig{MaxPollDelay: echomw.NoBound, MaxDueAge: 5 * time.Minute})
	require.Equal(t, 503, status)
	require.Equal(t, "events of "+string(old.AggregateType)+"/"+string(old.EventType)+" have been due for more than 6s", answer["backlog"]["problem"])
	status, _ = healthy(echomw.HealthConfig{MaxPollDelay: echomw.NoBound})
	require.Equal(t, 200, status, "no bound is no bound")

	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil }))))
	require.NoError(t, ob.Start(t.Context()))
	strict := echomw.HealthConfig{MaxPollDelay: 200 * time.Millisecond}
	require.Eventually(t, func() bool { status, _ = healthy(strict); return status == 200 }, 20*time.Second, time.Millisecond)
	store.polls.Store(false)
	require.Eventually(t, func() bool { status, answer = healthy(strict); return status == 503 }, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, "the poller has not read the table for more than 201ms", answer["poller"]["problem"])

	store.hangs.Store(true)
	began := time.Now()
	status, answer = healthy(echomw.HealthConfig{Timeout: 20 * time.Millisecond})
	require.Equal(t, 503, status)
	require.Equal(t, "the database did not answer within 20ms", answer["database"]["problem"])
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestHealthOfAnOutboxThatOnlyWrites(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob := newOutbox(t, outbox.Config{DB: store.DB(), Store: store, Mode: outbox.WriterOnly{}})
	a := newAppOn(t, &app{})
	a.GET("/healthz", echomw.Health(echomw.HealthConfig{Outbox: ob}))
	status, answer := healthOf(t, a)
	require.Equal(t, 200, status)
	require.NotContains(t, answer, "poller")
}

// A pool of one connection that the request's transaction holds would keep the
// check waiting.
func TestHealthAndAdminEndTheRequestsTransaction(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, sqliteTarget())
	db.SetMaxOpenConns(1)
	store := sqlstore.SQLite()
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	ob := newOutbox(t, outbox.Config{DB: db.DB, Store: store})
	a := newAppOn(t, &app{db: db.DB, transactor: adaptertest.Adapter(t, db.DB, ob.Writer())})
	a.configured(everyMethod())
	audit := func(next echo.HandlerFunc) echo.HandlerFunc { // what was written before is kept
		return func(c echo.Context) error {
			if err := execSQL(a.transactor.(*sqltx.Adapter))(c.Request().Context(), "CREATE TABLE audit (at TEXT)"); err != nil {
				return err
			}
			return next(c)
		}
	}
	a.GET("/healthz", echomw.Health(echomw.HealthConfig{Outbox: ob, MaxPollDelay: echomw.NoBound}), audit)
	echomw.Admin(a.Group("/admin"), ob, everything)
	status, _ := healthOf(t, a)
	require.Equal(t, 200, status)
	_, err := db.ExecContext(t.Context(), "INSERT INTO audit VALUES ('now')")
	require.NoError(t, err)
	a.wantAnswer(a.post("/admin/dead-letters/replay"), 200, `{"replayed":0}`)
}

func TestTheHealthConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := echomw.HealthConfig{Timeout: -1}.ToHandler()
	for _, text := range []string{"HealthConfig.Outbox is required", "HealthConfig.Timeout is -1ns"} {
		require.ErrorContains(t, err, text)
	}
	require.Panics(t, func() { echomw.Health(echomw.HealthConfig{}) })
}
