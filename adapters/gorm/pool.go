package outboxgorm

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// pool stands in front of GORM's connection pool and makes every transaction
// that is begun on it one of ours. It must not be a [gorm.TxBeginner]: GORM
// would then take a plain *sql.Tx from it.
type pool struct {
	gorm.ConnPool // of GORM, or of another plugin

	plugin  *plugin
	db      *sql.DB
	source  any
	dialect string
	probe   bool
}

var (
	_ gorm.ConnPoolBeginner = (*pool)(nil)
	_ gorm.GetDBConnector   = (*pool)(nil)
)

// BeginTx begins a transaction that the outbox knows of. After an error the
// result is a nil pointer in the interface, never a nil interface: a Rollback of
// the handle that GORM made of it has to be harmless.
func (p *pool) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	cfg := txscope.SessionConfig{Source: p.source, Dialect: p.dialect, Probe: p.probe, Logger: p.plugin.log.Load()}
	switch inner := p.ConnPool.(type) {
	case gorm.TxBeginner:
		sqlTx, session, err := txscope.BeginSession(ctx, cfg, func(ctx context.Context) (*sql.Tx, error) {
			return inner.BeginTx(ctx, opts)
		})
		if err != nil {
			return (*tx)(nil), err
		}
		return &tx{Tx: sqlTx, pool: p, session: session}, nil
	case gorm.ConnPoolBeginner:
		return p.beginCustom(ctx, cfg, inner, opts)
	default:
		return (*tx)(nil), gorm.ErrInvalidTransaction
	}
}

// customTx gives the transaction of another plugin an address of its own, which
// is what a session holds on to.
type customTx struct{ gorm.Tx }

func (p *pool) beginCustom(ctx context.Context, cfg txscope.SessionConfig, inner gorm.ConnPoolBeginner, opts *sql.TxOptions) (gorm.ConnPool, error) {
	custom, session, err := txscope.BeginSession(ctx, cfg, func(ctx context.Context) (*customTx, error) {
		connPool, err := inner.BeginTx(ctx, opts)
		if err != nil {
			return nil, err
		}
		if gormTx, ok := connPool.(gorm.Tx); ok {
			return &customTx{gormTx}, nil
		}
		if committer, ok := connPool.(gorm.TxCommitter); ok {
			_ = committer.Rollback()
		}
		return nil, fmt.Errorf("outbox: the transaction that %T began is a %T, which lacks a method of gorm.Tx", inner, connPool)
	})
	if err != nil {
		return (*tx)(nil), err
	}
	t := &tx{Tx: custom, pool: p, session: session}
	// Nothing else keeps a forgotten one until its context ends, when it is to
	// be rolled back.
	t.forget = context.AfterFunc(ctx, func() { runtime.KeepAlive(custom) })
	return t, nil
}

// GetDBConn is where [gorm.DB.DB] finds the pool.
func (p *pool) GetDBConn() (*sql.DB, error) { return p.db, nil }

// Ping is called by gorm.Open.
func (p *pool) Ping() error { return p.db.Ping() } //nolint:noctx // GORM's signature.
