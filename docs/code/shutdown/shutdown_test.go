// Package shutdown_test holds the Go code of docs/how-to/shutdown.md.
package shutdown_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// serve runs a service until SIGTERM, or until its server fails.
func serve(ctx context.Context, server *http.Server, ob *outbox.Outbox, db *sql.DB) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := ob.Start(ctx); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	var err error
	select {
	case err = <-failed: // the port is taken, for example
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once

	requests, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(requests))      // first: no request writes any more
	err = errors.Join(err, ob.Close(context.Background())) // then: at most 4 × DrainTimeout + 7 s
	return errors.Join(err, db.Close())                    // last
}

func Example_fx() {
	fx.New(
		fx.Provide(newDB),
		outboxfx.Module,
		fx.Replace(outboxfx.Config{Dispatch: outboxfx.DispatchConfig{DrainTimeout: 5 * time.Second}}),
		fx.StopTimeout(45*time.Second), // 10 s for requests, and more than 4 × DrainTimeout + 7 s
	).Run()
}

func newDB() *sql.DB { return new(sql.DB) }

// A listener that looks at its context is interrupted, and its event is released.
func TestAListenerThatIsInterruptedCostsNoAttempt(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{DrainTimeout: 50 * time.Millisecond},
	}})
	require.NoError(t, err)
	began := make(chan struct{})
	call := func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	}
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(ctx context.Context, _ outbox.Envelope) error {
		return call(ctx)
	}))))
	require.NoError(t, ob.Start(t.Context()))
	require.NoError(t, outbox.InTx(t.Context(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().Write(ctx, outbox.Envelope{EventType: "OrderPlaced", AggregateType: "Order", Payload: outbox.JSON(1)})
		return err
	}))
	<-began
	require.NoError(t, ob.Close(context.Background()))
	require.Equal(t, outbox.StatusNew, store.Rows()[0].Status)
	require.Zero(t, store.Rows()[0].Envelope.Attempts)
}

// The server fails at once, and everything is closed all the same.
func TestServeClosesTheOutboxWhenTheServerFails(t *testing.T) {
	t.Parallel()
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
	require.NoError(t, err)
	db := sql.OpenDB(nil)
	err = serve(t.Context(), &http.Server{Addr: taken.Listener.Addr().String()}, ob, db)
	require.ErrorContains(t, err, "address already in use")
	require.ErrorIs(t, ob.Start(t.Context()), outbox.ErrClosed)
}
