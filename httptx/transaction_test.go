package httptx_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

var errTest = errors.New("a failure that the test made")

// failing is a transactor whose transactions cannot begin, or not commit.
type failing struct{ begin, commit, rollback error }

func (f failing) Begin(ctx context.Context, _ *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	return ctx, f, f.begin
}
func (f failing) Commit() error   { return f.commit }
func (f failing) Rollback() error { return f.rollback }

// exchange sends a request through a middleware to a handler.
func exchange(ctx context.Context, t *testing.T, config httptx.TransactionConfig, handler http.HandlerFunc) *httptest.ResponseRecorder {
	t.Helper()
	mw, err := config.ToMiddleware()
	require.NoError(t, err)
	recorder := httptest.NewRecorder()
	mw(handler).ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", nil))
	return recorder
}

func created(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

// By default the client gets a 500 without details, and the log gets the rest.
func TestTheDefaultErrorHandlerShowsNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		transactor failing
		text       string
	}{
		"begin":  {failing{begin: errTest}, "level=ERROR msg=\"a request failed\" method=POST path=/orders error=\"httptx: beginning the request's transaction: a failure"},
		"commit": {failing{commit: errTest}, "error=\"httptx: committing the request's transaction: a failure"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			got := exchange(t.Context(), t, httptx.TransactionConfig{Transactor: tc.transactor, Logger: slog.New(slog.NewTextHandler(&log, nil))}, created)
			require.Equal(t, 500, got.Code)
			require.Equal(t, "Internal Server Error\n", got.Body.String())
			require.Contains(t, log.String(), tc.text)
		})
	}
}

// A client that has gone is no error of the server.
func TestAClientThatHasGoneIsNoErrorInTheLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	got := exchange(ctx, t, httptx.TransactionConfig{
		Transactor: failing{rollback: errTest}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		created(w, r)
	})
	require.Equal(t, 500, got.Code)
	require.Contains(t, log.String(), "level=WARN msg=\"rolling the request's transaction back failed\"")
	require.Contains(t, log.String(), "level=INFO msg=\"a request failed\"")
}

// Without an answer of the error handler, net/http would send a 200.
func TestAnErrorHandlerThatWritesNothing(t *testing.T) {
	t.Parallel()
	for _, transactor := range []failing{{begin: errTest}, {commit: errTest}} {
		var seen error
		got := exchange(t.Context(), t, httptx.TransactionConfig{
			Transactor:   transactor,
			ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { seen = err },
		}, created)
		require.Equal(t, 500, got.Code)
		require.Empty(t, got.Body.String())
		require.ErrorIs(t, seen, errTest)
	}
}

// The error handler gets a request that carries no transaction and whose context is
// alive, although a stream's context ended with its commit.
func TestTheErrorHandlerGetsALiveContext(t *testing.T) {
	t.Parallel()
	config := httptx.TransactionConfig{Transactor: failing{commit: errTest}, ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
		var commit *httptx.CommitError
		if r.Context().Err() == nil && errors.As(err, &commit) && errors.Is(httptx.OnCommit(r.Context(), func(context.Context) {}), outbox.ErrNoTransaction) {
			w.WriteHeader(http.StatusTeapot)
		}
	}}
	require.Equal(t, 418, exchange(t.Context(), t, config, func(w http.ResponseWriter, r *http.Request) {
		if http.NewResponseController(w).Flush() == nil || r.Context().Err() == nil {
			t.Error("the flush did not fail")
		}
	}).Code)
}

// net/http would panic too, but only after the commit.
func TestAStatusThatIsNoneIsNotCommitted(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "httptx: invalid status 0", func() {
		exchange(t.Context(), t, httptx.TransactionConfig{Transactor: failing{}}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(0) })
	})
}

// A panic goes on to the server, which aborts the response.
func TestAPanicGoesOn(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		exchange(t.Context(), t, httptx.TransactionConfig{Transactor: failing{}}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	})
}

func TestTheConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := httptx.TransactionConfig{MaxBuffer: -1, ReadBody: -2, ReadOnlyMethods: []string{"GET", "head", ""}}.ToMiddleware()
	for _, text := range []string{
		"TransactionConfig.Transactor is required", "TransactionConfig.MaxBuffer is -1", "TransactionConfig.ReadBody is -2",
		`TransactionConfig.ReadOnlyMethods[1] is "head"`, `TransactionConfig.ReadOnlyMethods[2] is ""`,
	} {
		require.ErrorContains(t, err, text)
	}
	_, err = httptx.TransactionConfig{Transactor: (*sqltx.Adapter)(nil)}.ToMiddleware()
	require.ErrorContains(t, err, "TransactionConfig.Transactor is required")
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Panics(t, func() { httptx.Transaction(nil) })
	require.Panics(t, func() { httptx.Health(httptx.HealthConfig{}) })
	require.Panics(t, func() { httptx.Admin(nil, httptx.Access{}) })
}

// A handler may be tested without a database.
func TestWithTheTestKit(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	transactor := outboxtest.NewTransactor(store.DB())
	recorder := httptest.NewRecorder()
	httptx.Transaction(transactor)(http.HandlerFunc(created)).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	require.Equal(t, 201, recorder.Code)
}
