package model_test

import (
	"context"
	"database/sql"

	"github.com/outboxkit/outbox-go/outbox"
)

// scope is a transaction whose end the test decides.
type scope struct {
	*sql.Tx
	outbox.TxWrites
	db         *sql.DB
	over       bool
	onCommit   []func()
	onRollback []func(context.Context, error)
}

var _ outbox.TxScope = (*scope)(nil)

func (s *scope) Active() bool { return !s.over }
func (s *scope) Source() any  { return s.db }

func (s *scope) AtCommit(fn func()) error {
	s.onCommit = append(s.onCommit, fn)
	return nil
}

func (s *scope) AfterCommit(func(context.Context)) error { return nil }

func (s *scope) AfterRollback(fn func(context.Context, error)) error {
	s.onRollback = append(s.onRollback, fn)
	return nil
}

// committed calls what is to run within COMMIT.
func (s *scope) committed() {
	for _, fn := range s.onCommit {
		fn()
	}
}

// rolledBack says how the transaction ended otherwise.
func (s *scope) rolledBack(cause error) {
	for _, fn := range s.onRollback {
		fn(context.Background(), cause)
	}
}
