package outboxgorm

import (
	"errors"

	"gorm.io/gorm"
)

// resolverName is that of dbresolver's callback, which chooses a connection pool
// for each statement and, through clauses, for Begin.
const resolverName = "gorm:db_resolver"

// followResolver puts the plugin in front of the pools of a dbresolver that was
// installed before it. One that is installed afterwards opens its pools through
// GORM, which calls Initialize for each.
func (p *plugin) followResolver(db *gorm.DB) error {
	c := db.Callback()
	dialect := db.Name()
	follow := func(resolve func(*gorm.DB), replace func(string, func(*gorm.DB)) error) error {
		if resolve == nil {
			return nil
		}
		return replace(resolverName, func(db *gorm.DB) {
			resolve(db)
			if _, inTx := db.Statement.ConnPool.(gorm.TxCommitter); inTx {
				return
			}
			db.Statement.ConnPool = p.wrapChosen(db.Statement.ConnPool, dialect)
		})
	}
	return errors.Join(
		follow(c.Create().Get(resolverName), c.Create().Before("*").Replace),
		follow(c.Query().Get(resolverName), c.Query().Before("*").Replace),
		follow(c.Update().Get(resolverName), c.Update().Before("*").Replace),
		follow(c.Delete().Get(resolverName), c.Delete().Before("*").Replace),
		follow(c.Row().Get(resolverName), c.Row().Before("*").Replace),
		follow(c.Raw().Get(resolverName), c.Raw().Before("*").Replace),
	)
}

// wrapChosen puts the plugin in front of a pool while statements run, so that
// nothing that is shared may be changed. A pool that cannot be wrapped stays as
// it is: its transactions are then unmanaged, and Write says so.
func (p *plugin) wrapChosen(connPool gorm.ConnPool, dialect string) gorm.ConnPool {
	if poolOf(connPool) != nil {
		return connPool
	}
	if prepared, ok := connPool.(*gorm.PreparedStmtDB); ok {
		wrapped := p.wrapChosen(prepared.ConnPool, dialect)
		return &gorm.PreparedStmtDB{Stmts: prepared.Stmts, Mux: prepared.Mux, ConnPool: wrapped}
	}
	if wrapped, err := p.wrap(connPool, dialect); err == nil {
		return wrapped
	}
	return connPool
}
