package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

// This file simulates failures, which POST /orders?simulate=… requests, to show how the
// outbox handles them. A real service does not need it.

// The failures that can be simulated.
const (
	simulateHandlerError  = "handler-error"
	simulatePanic         = "panic"
	simulateCommitFailure = "commit-failure"
	simulateListenerError = "listener-error" // twice, then the listener succeeds
	simulateListenerDead  = "listener-dead"  // until the event is replayed
	simulateKill          = "kill"           // the process, while it delivers; a second process delivers the event
)

var simulations = []string{simulateHandlerError, simulatePanic, simulateCommitFailure, simulateListenerError, simulateListenerDead, simulateKill}

type simulateKey struct{}

func simulationOf(ctx context.Context) string {
	simulate, _ := ctx.Value(simulateKey{}).(string)
	return simulate
}

// readSimulation puts the failure into the request's context.
func readSimulation(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		simulate := c.QueryParam("simulate")
		if simulate == "" {
			return next(c)
		}
		if !slices.Contains(simulations, simulate) {
			return badRequest("simulate is %q; known are %s", simulate, strings.Join(simulations, ", "))
		}
		if simulate == simulateKill {
			next = localOnly(next)
		}
		r := c.Request()
		c.SetRequest(r.WithContext(context.WithValue(r.Context(), simulateKey{}, simulate)))
		return next(c)
	}
}

// failHandler fails after the handler has succeeded.
func failHandler(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		switch simulationOf(c.Request().Context()) {
		case simulateHandlerError:
			return echo.NewHTTPError(http.StatusInternalServerError, "the handler failed (simulated)")
		case simulatePanic:
			panic("the handler panicked (simulated)")
		}
		return err
	}
}

// faultyTransactor begins transactions that fail to commit.
type faultyTransactor struct{ outbox.Transactor }

func (t faultyTransactor) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	txCtx, tx, err := t.Transactor.Begin(ctx, opts)
	if err == nil && simulationOf(ctx) == simulateCommitFailure {
		tx = failing{tx}
	}
	return txCtx, tx, err
}

type failing struct{ outbox.Transaction }

func (f failing) Commit() error {
	return errors.Join(errors.New("the database refused to commit (simulated)"), f.Rollback())
}

// kill kills this process, as kill -9 does.
func kill() error {
	own, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	return own.Kill()
}

// faultyListeners passes the failure to the listener, in a header of the event.
func faultyListeners() fx.Option {
	const header = "simulate"
	var doomed atomic.Bool // an event of this process kills it
	return fx.Options(
		outboxfx.AsHook(func() outbox.WriterHook {
			return outbox.WriterHook{BeforeWrite: func(ctx context.Context, envs []outbox.Envelope) ([]outbox.Envelope, error) {
				if simulate := simulationOf(ctx); simulate != "" {
					if simulate == simulateKill {
						doomed.Store(true)
					}
					for i := range envs {
						envs[i].Headers = map[string]string{header: simulate}
					}
				}
				return envs, nil
			}}
		}),
		outboxfx.AsInterceptor(func() outbox.Interceptor {
			return func(next outbox.Listener) outbox.Listener {
				return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
					switch simulate := env.Headers[header]; {
					case simulate == simulateListenerError && env.Attempts < 2:
						return errors.New("the warehouse does not answer (simulated)")
					case simulate == simulateKill && doomed.Load():
						time.Sleep(time.Second) // the answer to the order leaves before
						return kill()
					case simulate == simulateListenerDead && !env.IsDelayed(): // a replay makes the event due later than it occurred
						return outbox.Dead(errors.New("the warehouse does not know the item (simulated)"))
					}
					return next.OnEvent(ctx, env)
				})
			}
		}),
	)
}
