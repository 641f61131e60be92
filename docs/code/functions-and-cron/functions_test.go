// Package functions_test holds the Go code of docs/how-to/functions-and-cron.md.
package functions_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// function is a program without background work: /orders writes in a request, and a scheduler calls
// /drain every minute.
func function(ob *outbox.Outbox, a *sqltx.Adapter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		err := a.RunInTx(r.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			// … your own writes, with tx
			_, err := a.Write(ctx, tx, outbox.Envelope{EventType: "OrderPlaced", Payload: outbox.JSON("o-1")})
			return err
		})
		answer(w, err)
	})
	mux.HandleFunc("POST /drain", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 50*time.Second) // less than the function may take
		defer cancel()
		got, err := ob.Drain(ctx, 1000)
		slog.Info("drained", "done", got.Done, "failed", got.Failed, "left", got.Left)
		if errors.Is(err, context.DeadlineExceeded) {
			err = nil // the next call goes on
		}
		answer(w, err)
	})
	return mux
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, "it failed", http.StatusInternalServerError)
		slog.Error("request", "error", err)
	}
}

// drainAll is for a scheduled job: it delivers until nothing is left that can be delivered now.
func drainAll(ctx context.Context, ob *outbox.Outbox) error {
	for {
		got, err := ob.Drain(ctx, 1000)
		if err != nil || !got.More {
			return err
		}
	}
}

// importOrders is a command line program that writes and ends.
func importOrders(ctx context.Context, db *sql.DB, ids []string) (err error) {
	store := sqlstore.SQLite()
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}, Notifier: store})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ob.Close(context.WithoutCancel(ctx))) }()
	a, err := sqltx.New(db, ob.Writer())
	if err != nil {
		return err
	}
	return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		for _, id := range ids {
			if _, err := a.Write(ctx, tx, outbox.Envelope{EventType: "OrderPlaced", Payload: outbox.JSON(id)}); err != nil {
				return err
			}
		}
		return nil
	})
}

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sqltx.Open("sqlite", fmt.Sprintf("file:/functions-%s?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate", t.Name()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, sqlstore.SQLite().CreateSchema(t.Context(), db))
	return db
}

func TestTheFunctionDeliversWhatItsRequestsWrote(t *testing.T) {
	db := open(t)
	ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.SQLite(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	var delivered atomic.Int32 // two workers deliver at once
	require.NoError(t, ob.Register(outbox.On("", "OrderPlaced", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
		delivered.Add(1)
		return nil
	}))))
	t.Cleanup(func() { _ = ob.Close(context.Background()) })
	a, err := sqltx.New(db, ob.Writer())
	require.NoError(t, err)
	handler := function(ob, a)
	call := func(path string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
		require.Equal(t, http.StatusOK, w.Code)
	}
	call("/orders")
	call("/orders")
	require.Zero(t, delivered.Load())
	call("/drain")
	require.EqualValues(t, 2, delivered.Load())
	call("/orders")
	require.NoError(t, drainAll(t.Context(), ob))
	require.EqualValues(t, 3, delivered.Load())
}

func TestTheProgramWakesAnotherProcess(t *testing.T) {
	db := open(t)
	store := sqlstore.SQLite()
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: store, Notifier: store, Logger: slog.New(slog.DiscardHandler),
		Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}},
	})
	require.NoError(t, err)
	delivered := make(chan string, 2)
	require.NoError(t, ob.Register(outbox.On("", "OrderPlaced", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		delivered <- env.EventID
		return nil
	}))))
	require.NoError(t, ob.Start(t.Context()))
	t.Cleanup(func() { _ = ob.Close(context.Background()) })
	require.NoError(t, importOrders(t.Context(), db, []string{"o-1", "o-2"}))
	<-delivered
	<-delivered
}
