package httptx_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// slowStore answers a read of the pauses, and a purge, when it is let.
type slowStore struct {
	*outboxtest.Store
	began, let chan struct{}
}

func (s slowStore) wait(ctx context.Context) {
	select {
	case s.began <- struct{}{}:
		<-s.let
	case <-ctx.Done():
	}
}

func (s slowStore) Paused(ctx context.Context, db outbox.DB) ([]outbox.Pause, error) {
	s.wait(ctx)
	return s.Store.Paused(ctx, db)
}

func (s slowStore) Purge(ctx context.Context, db outbox.DB, q outbox.PurgeQuery) (outbox.Purged, error) {
	s.wait(ctx)
	return s.Store.Purge(ctx, db, q)
}

func TestAdminBoundsTheRequestsThatUseTheDatabase(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path string
		places       int
	}{
		"requests":      {http.MethodGet, "/pauses", httptx.AdminRequests},
		"bulk requests": {http.MethodPost, "/purge", httptx.AdminBulkRequests},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := slowStore{outboxtest.NewStore(), make(chan struct{}), make(chan struct{})}
			ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler), Purge: &outbox.PurgeOptions{}})
			require.NoError(t, err)
			admin := httptx.Admin(ob, httptx.Access{Authorize: operator, Logger: slog.New(slog.DiscardHandler)})
			send := func(ctx context.Context) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				admin.ServeHTTP(w, httptest.NewRequestWithContext(ctx, test.method, test.path, nil))
				return w
			}
			var running sync.WaitGroup
			for range test.places {
				running.Go(func() { assert.Equal(t, http.StatusOK, send(t.Context()).Code) })
				<-store.began
			}
			ended, end := context.WithCancel(t.Context())
			end() // does not wait for a place
			refused := send(ended)
			require.Equal(t, http.StatusServiceUnavailable, refused.Code)
			require.Equal(t, "5", refused.Header().Get("Retry-After"))
			require.Contains(t, refused.Body.String(), "too many requests of operators")
			close(store.let)
			running.Wait()
			running.Go(func() { assert.Equal(t, http.StatusOK, send(t.Context()).Code, "the places are free again") })
			<-store.began
			running.Wait()
		})
	}
}

func TestHealthChecksThatComeAtOnceShareARead(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/?verbose"} {
		synctest.Test(t, func(t *testing.T) {
			store := slowStore{outboxtest.NewStore(), make(chan struct{}, 10), make(chan struct{})}
			ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.WriterOnly{}, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			check := httptx.Health(httptx.HealthConfig{Outbox: ob})
			var checks sync.WaitGroup
			for range 5 {
				checks.Go(func() { assert.Equal(t, http.StatusOK, get(t, check, path).Code) })
			}
			synctest.Wait()
			require.Len(t, store.began, 1)
			close(store.let)
			checks.Wait()
			require.Equal(t, http.StatusOK, get(t, check, path).Code)
			require.Len(t, store.began, 2, "the next check reads again")
		})
	}
}

func TestAdminReadsTheStatsAgainAfterAChange(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	admin := httptx.Admin(ob, httptx.Access{Authorize: operator, Logger: slog.New(slog.DiscardHandler)})
	require.NotContains(t, get(t, admin, "/stats").Body.String(), `"Placed"`)
	w := httptest.NewRecorder()
	admin.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/pause?event_type=Placed", nil))
	require.Less(t, w.Code, 300, w.Body.String())
	require.Contains(t, get(t, admin, "/stats").Body.String(), `"Placed"`)
}
