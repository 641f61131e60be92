package sqltx

import (
	"context"
	"database/sql"
	"sync/atomic"
	"weak"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// session is what the adapter keeps of one transaction.
type session struct {
	*txscope.Session
	tx         weak.Pointer[sql.Tx]
	dialect    string
	savepoints atomic.Uint64
}

func (a *Adapter) begin(ctx context.Context, opts *sql.TxOptions) (*Tx, error) {
	s := &session{dialect: a.dialect}
	cfg := txscope.SessionConfig{
		Source: a.source, Dialect: a.dialect, Probe: a.probe, Logger: a.log,
		OnEnd: func() { sessions.remove(s) },
	}
	sqlTx, inner, err := txscope.BeginSession(ctx, cfg, func(ctx context.Context) (*sql.Tx, error) {
		tx, err := a.db.BeginTx(ctx, opts)
		if err == nil {
			s.tx = weak.Make(tx)
		}
		return tx, err
	})
	if err != nil {
		return nil, err
	}
	s.Session = inner
	sessions.add(s)
	if inner.Ending() { // the context ended before it was added
		sessions.remove(s)
	}
	return &Tx{Tx: sqlTx, session: s, ctx: ctx}, nil
}
