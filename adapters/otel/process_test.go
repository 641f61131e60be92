package outboxotel_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// The environment that makes this test binary a process that delivers.
const (
	workerDriver  = "OUTBOX_TEST_WORKER_DRIVER"
	workerDSN     = "OUTBOX_TEST_WORKER_DSN"
	workerChildOf = "OUTBOX_TEST_WORKER_CHILD_OF"
	workerStuck   = "OUTBOX_TEST_WORKER_STUCK"
)

// stuck is the line of a worker whose listener has begun and never returns.
const stuck = "stuck"

// work delivers the table's events and prints the spans, until its input ends.
func work() {
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	exporter, err := stdouttrace.New()
	check(err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	opts := []outboxotel.Option{outboxotel.WithTracerProvider(provider)}
	if os.Getenv(workerChildOf) != "" {
		opts = append(opts, outboxotel.WithChildOf())
	}
	db, err := sql.Open(os.Getenv(workerDriver), os.Getenv(workerDSN))
	check(err)
	store, err := sqlstore.Detect(ctx, db)
	check(err)
	o, err := outbox.New(outbox.Config{
		DB: db, Store: store, Interceptors: []outbox.Interceptor{outboxotel.Interceptor(opts...)},
		Mode: outbox.MultiNode{
			Poll:  outbox.PollOptions{Interval: 20 * time.Millisecond},
			Claim: outbox.ClaimOptions{LeaseDuration: time.Second},
		},
	})
	check(err)
	check(o.Register(on(func(ctx context.Context, _ outbox.Envelope) error {
		_, mail := provider.Tracer("worker").Start(ctx, "send mail")
		mail.End()
		if os.Getenv(workerStuck) != "" {
			fmt.Println(stuck)
			select {}
		}
		return nil
	})))
	check(o.Start(ctx))
	_, err = io.Copy(io.Discard, os.Stdin)
	check(err)
	check(o.Close(ctx))
	check(db.Close())
	os.Exit(0)
}

// worker is a process that delivers.
type worker struct {
	*exec.Cmd
	stdin io.Closer
	read  chan struct{} // closed when there is no more to read

	mu    sync.Mutex
	stuck bool
	spans map[string]printed // by name
}

// printed is a span as the worker prints it.
type printed struct {
	Name        string
	SpanContext spanID
	Parent      spanID
	Links       []struct{ SpanContext spanID }
}

// spanID names a span.
type spanID struct {
	TraceID, SpanID string
	Remote          bool
}

// remotely is how another process knows the span.
func remotely(s trace.Span) spanID {
	return spanID{s.SpanContext().TraceID().String(), s.SpanContext().SpanID().String(), true}
}

func startWorker(t *testing.T, db *testdb.DB, env ...string) *worker {
	t.Helper()
	driver := map[testdb.Kind]string{testdb.Postgres: "pgx", testdb.MySQL: "mysql", testdb.SQLite: "sqlite"}[db.Kind]
	w := &worker{Cmd: exec.CommandContext(t.Context(), os.Args[0]), read: make(chan struct{}), spans: map[string]printed{}}
	w.Env = append(append(os.Environ(), workerDriver+"="+driver, workerDSN+"="+db.DSN), env...)
	w.Stderr = os.Stderr
	stdin, err := w.StdinPipe()
	require.NoError(t, err)
	w.stdin = stdin
	stdout, err := w.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, w.Start())
	go func() {
		defer close(w.read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			w.take(lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = w.Process.Kill()
		<-w.read
		_ = w.Wait()
	})
	return w
}

// take reads a line of the worker's output.
func (w *worker) take(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var span printed
	switch {
	case line == stuck:
		w.stuck = true
	case json.Unmarshal([]byte(line), &span) == nil:
		w.spans[span.Name] = span
	}
}

// span is the ended span of that name.
func (w *worker) span(name string) (span printed, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	span, ended = w.spans[name]
	return span, ended
}

// delivered waits for the worker's delivery and returns its span.
func (w *worker) delivered(t *testing.T) (span printed) {
	t.Helper()
	eventually(t, func() (ended bool) { span, ended = w.span(deliverPlaced); return ended }, "a delivery")
	return span
}

// listeners is the span of what the listener did.
func (w *worker) listeners(t *testing.T) (span printed) {
	t.Helper()
	span, ended := w.span("send mail")
	require.True(t, ended)
	return span
}

// end makes the worker end normally.
func (w *worker) end(t *testing.T) {
	t.Helper()
	require.NoError(t, w.stdin.Close())
	<-w.read
	require.NoError(t, w.Wait())
}

// isStuck reports whether the worker is in the middle of a delivery.
func (w *worker) isStuck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stuck
}

// request writes an event in this process, in a span and in a transaction.
func request(t *testing.T, db *testdb.DB) trace.Span {
	t.Helper()
	store, err := sqlstore.Detect(t.Context(), db.DB)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	spans := newRecording(t)
	o, err := outbox.New(outbox.Config{
		DB: db.DB, Store: store, Mode: outbox.WriterOnly{},
		Hooks: []outbox.WriterHook{outboxotel.Hook(outboxotel.WithTracerProvider(spans))},
	})
	require.NoError(t, err)
	ctx, span := spans.start(t.Context(), "POST /orders")
	defer span.End()
	adapter := adaptertest.Adapter(t, db.DB, o.Writer())
	require.NoError(t, adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := adapter.Write(ctx, tx, event())
		return err
	}))
	return span
}

func TestADeliveryInAnotherProcessIsLinkedToTheWrite(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		producer := request(t, db)
		w := startWorker(t, db)
		delivery := w.delivered(t)
		require.Len(t, delivery.Links, 1)
		require.Equal(t, remotely(producer), delivery.Links[0].SpanContext)
		require.NotEqual(t, remotely(producer).TraceID, delivery.SpanContext.TraceID)
		require.Equal(t, delivery.SpanContext, w.listeners(t).Parent)
		w.end(t)
	})
}

// A worker dies in the middle of a delivery. Its span is lost, and the next
// worker's span belongs to the same write.
func TestADeliveryAfterACrashBelongsToTheSameWrite(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		producer := request(t, db)
		killed := startWorker(t, db, workerChildOf+"=1", workerStuck+"=1")
		eventually(t, killed.isStuck, "a delivery to begin")
		require.NoError(t, killed.Process.Kill())
		<-killed.read
		_, ended := killed.span(deliverPlaced)
		require.False(t, ended)

		next := startWorker(t, db, workerChildOf+"=1")
		delivery := next.delivered(t)
		require.Equal(t, remotely(producer), delivery.Parent)
		require.Equal(t, remotely(producer).TraceID, delivery.SpanContext.TraceID)
		require.NotEqual(t, killed.listeners(t).Parent, delivery.SpanContext, "another span")
		require.Equal(t, delivery.SpanContext, next.listeners(t).Parent)
		require.Equal(t, remotely(producer).TraceID, killed.listeners(t).SpanContext.TraceID, "what the first did is in the trace too")
	})
}
