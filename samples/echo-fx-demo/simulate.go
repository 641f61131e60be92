package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/outbox"
)

const simulateCommitFailure = "commit-failure"

type simulateKey struct{}

// simulated puts the failure that is to be shown into the request's context.
func simulated(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		simulate, err := simulationOf(c)
		if err != nil {
			return err
		}
		if simulate != "" {
			r := c.Request()
			c.SetRequest(r.WithContext(context.WithValue(r.Context(), simulateKey{}, simulate)))
		}
		return next(c)
	}
}

// listenersFailure is what the listener has to be told.
func listenersFailure(simulate string) string {
	if simulate == simulateListenerError || simulate == simulateListenerDead {
		return simulate
	}
	return ""
}

// faultyTransactor is the shop's, whose transactions fail to commit when that is
// to be shown.
type faultyTransactor struct{ outbox.Transactor }

func (t *faultyTransactor) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	txCtx, tx, err := t.Transactor.Begin(ctx, opts)
	if err == nil && ctx.Value(simulateKey{}) == simulateCommitFailure {
		tx = failing{tx}
	}
	return txCtx, tx, err
}

// failing is a transaction that the database refuses to commit.
type failing struct{ outbox.Transaction }

var errCommit = errors.New("the database refused to commit (simulated)")

func (f failing) Commit() error { return errors.Join(errCommit, f.Rollback()) }
