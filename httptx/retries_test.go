package httptx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/txretry"
)

// refused is PostgreSQL's serialization failure.
type refused struct{}

func (refused) Error() string    { return "refused" }
func (refused) SQLState() string { return "40001" }

// conflicted is a transactor whose first transactions are refused where the test says.
type conflicted struct {
	begin, commit error
	first         int
	begun         int
}

func (r *conflicted) Begin(ctx context.Context, _ *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	if r.begun++; r.begun > r.first {
		return ctx, failing{}, nil
	}
	return ctx, failing{commit: r.commit}, r.begin
}

func retrying(t *testing.T, transactor outbox.Transactor, h http.HandlerFunc) http.Handler {
	t.Helper()
	mw, err := httptx.TransactionConfig{Transactor: transactor, Retries: 2, MaxBuffer: 10, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}}.ToMiddleware()
	require.NoError(t, err)
	return mw(h)
}

// BEGIN and COMMIT may be refused too. An unknown outcome is no refusal.
func TestBeginAndCommitMayBeRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		transactor conflicted
		status     int
		body       string
		calls      int
	}{
		"begin":   {conflicted{begin: refused{}, first: 2}, 201, "", 1},
		"commit":  {conflicted{commit: refused{}, first: 2}, 201, "", 3},
		"always":  {conflicted{commit: refused{}, first: 3}, 500, "httptx: committing the request's transaction: refused\n", 3},
		"begins":  {conflicted{begin: refused{}, first: 3}, 500, "httptx: beginning the request's transaction: refused\n", 0},
		"unknown": {conflicted{commit: fmt.Errorf("%w: %w", outbox.ErrOutcomeUnknown, refused{}), first: 1}, 500, "httptx: committing the request's transaction: outbox: the outcome of the commit is unknown: refused\n", 1},
		"other":   {conflicted{commit: errTest, first: 1}, 500, "httptx: committing the request's transaction: a failure that the test made\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			handler := retrying(t, &tc.transactor, func(w http.ResponseWriter, _ *http.Request) {
				calls++
				w.WriteHeader(http.StatusCreated)
			})
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
			require.Equal(t, tc.status, recorder.Code)
			require.Equal(t, tc.body, recorder.Body.String())
			require.Equal(t, tc.calls, calls)
		})
	}
}

// A long response is sent while the handler writes: its COMMIT may be refused as long as nothing was sent.
func TestARefusedCommitOfALongResponse(t *testing.T) {
	t.Parallel()
	calls := 0
	handler := retrying(t, &conflicted{commit: refused{}, first: 1}, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		_, err := io.WriteString(w, strings.Repeat("x", 11))
		require.Equal(t, calls == 1, err != nil)
	})
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	require.Equal(t, strings.Repeat("x", 11), recorder.Body.String())
	require.Equal(t, 2, calls)
}

// When the request ends before another attempt, the client gets an answer all the same.
func TestARequestThatEndsBeforeAnotherAttempt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	handler := retrying(t, &cancelling{conflicted{commit: refused{}, first: 5}, cancel}, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.Header().Set("Attempt", "1")
		w.WriteHeader(http.StatusCreated)
	})
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
	require.Equal(t, 1, calls)
	require.Equal(t, 500, recorder.Code)
	require.Contains(t, recorder.Body.String(), "was not run again")
	require.Empty(t, recorder.Header().Get("Attempt"))
}

// cancelling ends the request when its transaction is rolled back or refused.
type cancelling struct {
	conflicted
	cancel func()
}

func (c *cancelling) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	ctx, tx, err := c.conflicted.Begin(ctx, opts)
	return ctx, ending{tx, c.cancel}, err
}

type ending struct {
	outbox.Transaction
	cancel func()
}

func (e ending) Commit() error {
	defer e.cancel()
	return e.Transaction.Commit()
}

// Each attempt reads the body from its beginning, whatever the attempts before have read of it.
func TestEachAttemptReadsTheBody(t *testing.T) {
	t.Parallel()
	broken := errors.New("the client has gone")
	for name, tc := range map[string]struct {
		body   io.Reader
		first  int64 // bytes that the first attempt reads
		closes bool
		want   string
		err    error
		calls  int
	}{
		"all":             {strings.NewReader("0123456789"), 100, false, "0123456789", nil, 2},
		"closed":          {strings.NewReader("0123456789"), 100, true, "0123456789", nil, 2},
		"some":            {strings.NewReader("0123456789"), 3, true, "0123456789", nil, 2},
		"nothing":         {strings.NewReader("0123456789"), 0, true, "0123456789", nil, 2},
		"byte by byte":    {iotest.OneByteReader(strings.NewReader("0123456789")), 5, false, "0123456789", nil, 2},
		"with the end":    {iotest.DataErrReader(strings.NewReader("0123456789")), 100, false, "0123456789", nil, 2},
		"too long later":  {strings.NewReader("0123456789x"), 5, false, "0123456789x", nil, 2},
		"too long":        {strings.NewReader("0123456789x"), 100, false, "", nil, 1},
		"one that breaks": {io.MultiReader(strings.NewReader("01234"), iotest.ErrReader(broken)), 3, false, "01234", broken, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			var first io.Reader
			handler := retrying(t, &conflicted{commit: refused{}, first: 1}, func(w http.ResponseWriter, r *http.Request) {
				if calls++; calls == 1 {
					first = r.Body
					_, err := io.ReadAll(io.LimitReader(r.Body, tc.first))
					require.NoError(t, err)
					if tc.closes {
						require.NoError(t, r.Body.Close())
					}
					w.WriteHeader(http.StatusCreated)
					return
				}
				n, err := first.Read(make([]byte, 1))
				require.Zero(t, n, "a goroutine that the first attempt has left")
				require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
				read, err := io.ReadAll(r.Body)
				require.ErrorIs(t, err, tc.err)
				require.Equal(t, tc.want, string(read))
			})
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", tc.body))
			require.Equal(t, tc.calls, calls)
		})
	}
}

// What a goroutine of an attempt does later does not reach another attempt.
func TestAGoroutineOfAnotherAttempt(t *testing.T) {
	t.Parallel()
	calls := 0
	var late func()
	handler := retrying(t, &conflicted{commit: refused{}, first: 1}, func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 {
			late = func() {
				_, err := io.WriteString(w, "late")
				require.Error(t, err)
				w.WriteHeader(http.StatusTeapot)
				require.Error(t, httptx.OnCommit(r.Context(), func(context.Context) { t.Error("committed") }))
				require.Error(t, httptx.Rollback(r.Context()))
				require.Error(t, r.Context().Err())
			}
			return
		}
		require.Equal(t, 2, txretry.Attempt(r.Context()))
		late()
		w.WriteHeader(http.StatusCreated)
	})
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	require.Equal(t, 201, recorder.Code)
	require.Empty(t, recorder.Body.String())
}

// chi keeps the place of a request in the routes in a value that it changes.
func TestAnotherAttemptBelowASubrouterOfChi(t *testing.T) {
	t.Parallel()
	var seen []string
	mw, err := httptx.TransactionConfig{Transactor: &conflicted{commit: refused{}, first: 1}, Retries: 1}.ToMiddleware()
	require.NoError(t, err)
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			seen = append(seen, "outside "+chi.RouteContext(r.Context()).RoutePattern())
		})
	}, mw)
	r.Route("/orders", func(r chi.Router) {
		r.Post("/{id}", func(w http.ResponseWriter, r *http.Request) {
			seen = append(seen, chi.RouteContext(r.Context()).RoutePattern()+" "+chi.URLParam(r, "id"))
			w.WriteHeader(http.StatusCreated)
		})
	})
	recorder := httptest.NewRecorder()
	r.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/7", nil))
	require.Equal(t, 201, recorder.Code)
	require.Equal(t, []string{"/orders/{id} 7", "/orders/{id} 7", "outside /orders/{id}"}, seen)
}

// A handler may return while a goroutine of it waits for the body.
func TestAHandlerThatDoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	body, client := io.Pipe()
	began := make(chan struct{})
	handler := retrying(t, &conflicted{}, func(w http.ResponseWriter, r *http.Request) {
		go func() {
			close(began)
			_, _ = io.ReadAll(r.Body)
		}()
		<-began
		w.WriteHeader(http.StatusCreated)
	})
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body))
	require.Equal(t, 201, recorder.Code)
	require.NoError(t, client.Close())
}
