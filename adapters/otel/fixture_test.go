package outboxotel_test

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

const (
	order  outbox.AggregateType = "order"
	placed outbox.EventType     = "order.placed"
)

// recording is an SDK that keeps ended spans.
type recording struct {
	*sdktrace.TracerProvider
	exporter *tracetest.InMemoryExporter
}

func newRecording(t *testing.T, opts ...sdktrace.TracerProviderOption) *recording {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	p := sdktrace.NewTracerProvider(append(opts, sdktrace.WithSyncer(exporter))...)
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	return &recording{p, exporter}
}

// named are the ended spans of that name, oldest first.
func (r *recording) named(name string) tracetest.SpanStubs {
	var found tracetest.SpanStubs
	for _, s := range r.exporter.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// wait returns the n spans of that name when they have ended.
func (r *recording) wait(t *testing.T, name string, n int) tracetest.SpanStubs {
	t.Helper()
	eventually(t, func() bool { return len(r.named(name)) >= n }, "%d spans named %q", n, name)
	spans := r.named(name)
	require.Len(t, spans, n)
	return spans
}

// start begins a span like a server's middleware.
func (r *recording) start(ctx context.Context, name string) (context.Context, trace.Span) {
	return r.Tracer("test").Start(ctx, name)
}

func eventually(t *testing.T, ok func() bool, format string, args ...any) {
	t.Helper()
	require.Eventuallyf(t, ok, 20*time.Second, 2*time.Millisecond, format, args...)
}

func attributes(s tracetest.SpanStub) map[string]any {
	m := map[string]any{}
	for _, kv := range s.Attributes {
		m[string(kv.Key)] = kv.Value.AsInterface()
	}
	return m
}

func value(s tracetest.SpanStub, key string) any {
	for _, kv := range s.Attributes {
		if kv.Key == attribute.Key(key) {
			return kv.Value.AsInterface()
		}
	}
	return nil
}

// openDB is a SQLite database with the outbox's table.
func openDB(t *testing.T) *testdb.DB {
	t.Helper()
	for _, target := range adaptertest.Main() {
		if target.Kind == testdb.SQLite {
			db := testdb.Open(t, target)
			require.NoError(t, sqlstore.SQLite().CreateSchema(t.Context(), db.DB))
			return db
		}
	}
	t.Fatal("there is no SQLite among the targets")
	return nil
}

// app is a running outbox and the adapter that writes into it.
type app struct {
	*outbox.Outbox
	db      *sql.DB
	adapter *sqltx.Adapter
}

// configure sets the config fields that the tests share.
func configure(db *sql.DB, cfg outbox.Config) outbox.Config {
	cfg.DB, cfg.Store = db, sqlstore.SQLite()
	if cfg.Mode == nil {
		cfg.Mode = outbox.SingleNode{Poll: outbox.PollOptions{Interval: 20 * time.Millisecond}}
	}
	if cfg.RetryPolicy == nil {
		cfg.RetryPolicy = outbox.RetryPolicyFunc(func(int) time.Duration { return 5 * time.Millisecond })
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	return cfg
}

func run(t *testing.T, db *sql.DB, cfg outbox.Config, bindings ...outbox.Binding) *app {
	t.Helper()
	o, err := outbox.New(configure(db, cfg))
	require.NoError(t, err)
	if len(bindings) > 0 {
		require.NoError(t, o.Register(bindings...))
	}
	require.NoError(t, o.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, o.Close(context.Background())) })
	return &app{o, db, adaptertest.Adapter(t, db, o.Writer(), sqltx.AllowUnmanaged())}
}

// traced is the config of an outbox whose writes and deliveries are traced.
func traced(opts ...outboxotel.Option) outbox.Config {
	return outbox.Config{
		Hooks:        []outbox.WriterHook{outboxotel.Hook(opts...)},
		Interceptors: []outbox.Interceptor{outboxotel.Interceptor(opts...)},
	}
}

// write writes the events in a transaction that commits.
func (a *app) write(ctx context.Context, t *testing.T, envs ...outbox.Envelope) []string {
	t.Helper()
	var ids []string
	err := a.adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) (err error) {
		ids, err = a.adapter.WriteAll(ctx, tx, envs)
		return err
	})
	require.NoError(t, err)
	return ids
}

// headers are those of the event's row.
func (a *app) headers(t *testing.T, id string) string {
	t.Helper()
	var headers sql.NullString
	require.NoError(t, a.db.QueryRowContext(t.Context(), "SELECT headers FROM outbox_event WHERE event_id = ?", id).Scan(&headers))
	return headers.String
}

func event() outbox.Envelope {
	return outbox.Envelope{
		EventType: placed, AggregateType: order, AggregateID: "o-1", TenantID: "acme",
		Payload: outbox.RawJSON(`{"secret":"payload"}`),
	}
}

func on(fn func(ctx context.Context, env outbox.Envelope) error) outbox.Binding {
	return outbox.On(order, placed, outbox.ListenerFunc(fn))
}

func succeed(context.Context, outbox.Envelope) error { return nil }
