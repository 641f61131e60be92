package outboxgorm

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// pluginName is what GORM keeps the plugin under.
const pluginName = "outbox"

// PluginOption changes the plugin: [WithLogger] is one.
type PluginOption interface{ applyToPlugin(*plugin) }

// Plugin makes the plugin that sees GORM's transactions begin and end. Call
// db.Use with it once, on what gorm.Open returned and before sessions are made
// of that: a handle made earlier goes on without it. It may be installed before
// or after dbresolver, but after other plugins that replace the connection pool.
// Use fails when the *sql.DB below the handle cannot be found.
func Plugin(opts ...PluginOption) gorm.Plugin {
	p := &plugin{}
	for _, opt := range opts {
		opt.applyToPlugin(p)
	}
	return p
}

type plugin struct {
	log atomic.Pointer[slog.Logger]
	// pools has the wrapper of each *sql.DB, so that one that dbresolver hands
	// out again and again is wrapped once.
	pools sync.Map
}

// Name is "outbox".
func (p *plugin) Name() string { return pluginName }

// Initialize puts the plugin in front of the handle's pool. Dbresolver calls it
// again for each source and replica that it opens.
func (p *plugin) Initialize(db *gorm.DB) error {
	wrapped, err := p.wrap(db.ConnPool, db.Name())
	if err != nil {
		return err
	}
	db.ConnPool = wrapped
	if db.Statement != nil {
		db.Statement.ConnPool = wrapped
	}
	if db.Callback().Raw().Get(observeName) != nil {
		return nil // called twice for this handle
	}
	return errors.Join(registerCallbacks(db), p.followResolver(db))
}

// wrap puts a pool of ours in front of another, below the layer that prepares
// statements. That layer is changed in place, because GORM shares it between
// handles.
func (p *plugin) wrap(connPool gorm.ConnPool, dialect string) (gorm.ConnPool, error) {
	switch inner := connPool.(type) {
	case *pool:
		return inner, nil
	case *gorm.PreparedStmtDB:
		if _, done := inner.ConnPool.(*pool); done {
			return inner, nil
		}
		wrapped, err := p.wrap(inner.ConnPool, dialect)
		if err != nil {
			return nil, err
		}
		inner.ConnPool = wrapped
		return inner, nil
	case *sql.DB:
		if inner == nil {
			break
		}
		if known, ok := p.pools.Load(inner); ok {
			return known.(*pool), nil
		}
		known, _ := p.pools.LoadOrStore(inner, p.newPool(inner, inner, dialect))
		return known.(*pool), nil
	case gorm.TxCommitter:
		return nil, &outbox.FieldError{Field: "outboxgorm.Plugin", Problem: "was given to Use of a transaction; call Use on what gorm.Open returned"}
	case gorm.GetDBConnector:
		db, err := inner.GetDBConn()
		if err != nil {
			return nil, fmt.Errorf("outbox: finding the *sql.DB below a %T: %w", connPool, err)
		}
		if db != nil {
			return p.newPool(connPool, db, dialect), nil
		}
	}
	return nil, &outbox.FieldError{Field: "outboxgorm.Plugin", Problem: fmt.Sprintf(
		"finds no *sql.DB below a connection pool of type %T; give it the method GetDBConn", connPool)}
}

// newPool makes the pool that stands in front of inner, whose connections are
// those of db.
func (p *plugin) newPool(inner gorm.ConnPool, db *sql.DB, dialect string) *pool {
	return &pool{
		ConnPool: inner, plugin: p, db: db, source: outbox.PoolOf(db),
		dialect: dialect, probe: txscope.NeedsProbe(db, dialect),
	}
}

// pluginOf finds the plugin of a handle. The map of gorm.Config.Plugins may have
// it under any name.
func pluginOf(db *gorm.DB) (*plugin, bool) {
	for _, installed := range db.Plugins {
		if p, ok := installed.(*plugin); ok {
			return p, true
		}
	}
	return nil, false
}

// poolOf is our pool below a handle's, or nil.
func poolOf(connPool gorm.ConnPool) *pool {
	for {
		switch v := connPool.(type) {
		case *pool:
			return v
		case *gorm.PreparedStmtDB:
			connPool = v.ConnPool
		default:
			return nil
		}
	}
}

// isNil reports whether a connection pool is nil or has a nil pointer in it, as
// it has after a BEGIN that failed.
func isNil(connPool gorm.ConnPool) bool {
	if connPool == nil {
		return true
	}
	v := reflect.ValueOf(connPool)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
