package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/outbox"
)

// findPatience is how long a write waits for a second connection of the pool. The write's
// transaction has a connection already, so waiting longer may be in vain.
const findPatience = 5 * time.Second

// texts are a name of the table, and the statement texts that were built with the name.
type texts struct {
	table   sqlname.Name
	inserts insertTexts
	lists   sync.Map // of texts, by listed
}

// BindPool implements [outbox.PoolBinder]. A table that was given without a schema may be a
// different table in each session: after SET search_path or USE, beside a temporary table, under
// another role. The statements of the bound store name the schema in which the pool finds the
// table. The store learns the schema in Check, or else before the first INSERT. SQLite is not
// asked: there the schema is main.
//
// A store that embeds this store stays as it is, and this store is bound in place. If several pools
// share such a store, their Checks must find the table in a single schema; otherwise the table's
// name stays as it was given.
func (s *Store) BindPool(db outbox.DB, asked outbox.Store) outbox.Store {
	bound := s.pool.Load()
	same := bound != nil && reflect.TypeOf(db).Comparable() && *bound == db
	if own, _ := asked.(*Store); own == s && !same {
		copied := &Store{d: s.d, table: s.table, codec: s.codec, err: s.err, turn: s.turn, indexes: s.indexes}
		copied.asGiven.table = s.table
		copied.bind(db)
		return copied
	}
	switch {
	case same:
	case bound == nil && !s.several.Load():
		s.bind(db)
	case !s.several.Swap(true):
		s.pool.Store(nil)
		if s.isAsked() {
			s.found.Store(nil)
		}
	}
	return asked
}

func (s *Store) bind(db outbox.DB) {
	s.pool.Store(&db)
	switch {
	case s.table.Schema != "":
		s.foundIn(s.table.Schema)
	case s.d == sqlite:
		s.foundIn("main")
	}
}

// isAsked reports whether the database has to be asked for the schema of the table.
func (s *Store) isAsked() bool { return s.table.Schema == "" && s.d != sqlite }

// asks reports whether Check asks for the schema: if the schema is not known, and again for each of
// several pools.
func (s *Store) asks() bool {
	if s.several.Load() {
		return s.isAsked() && !s.unclear.Load()
	}
	return s.pool.Load() != nil && s.found.Load() == nil
}

func (s *Store) foundIn(schema string) {
	before := s.found.Swap(&texts{table: sqlname.Name{Schema: schema, Name: s.table.Name}})
	if before != nil && before.table.Schema != schema {
		s.unclear.Store(true)
		s.found.Store(nil)
	}
}

// texts returns the texts of the name that statements use now.
func (s *Store) texts() *texts {
	if found := s.found.Load(); found != nil {
		return found
	}
	return &s.asGiven
}

func (s *Store) name() sqlname.Name { return s.texts().table }

// findOnce finds the table before a write. Otherwise the write would go to the table that the
// session of the transaction finds.
func (s *Store) findOnce(ctx context.Context) error {
	bound := s.pool.Load()
	if s.err != nil || bound == nil || s.found.Load() != nil {
		return s.err
	}
	const what = "finding the table"
	if pool, ok := (*bound).(sqlPool); ok && pool.Stats().MaxOpenConnections == 1 {
		return s.fail(what, errors.New("the only connection of the pool is in use by the transaction: call Start, or Store.Check, before the first write"))
	}
	ctx, cancel := context.WithTimeout(ctx, findPatience)
	defer cancel()
	path, err := s.find(ctx, *bound)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w; call Start, or Store.Check, before the first write, or let the pool have more connections", err)
	case err == nil && s.found.Load() == nil:
		return s.fail(what, fmt.Errorf("it is not in %s%s", path, s.createWayOut()))
	default:
		return err
	}
}

// find asks in which schema a session of the pool finds the table, temporary tables apart, and
// returns the places that were searched.
func (s *Store) find(ctx context.Context, db queryer) (path string, err error) {
	var schema, schemas sql.NullString
	if s.d == postgres {
		q := s.query(512).add("SELECT (SELECT nspname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relname = ").arg(s.table.Name).
			add(" AND relpersistence <> 't' AND relkind IN ('r', 'p', 'v', 'f') AND nspname = ANY(current_schemas(false))" +
				" ORDER BY array_position(current_schemas(false), nspname) LIMIT 1), array_to_string(current_schemas(false), ', ')")
		err = s.rows(ctx, db, "asking for the schema", q, scanInto(&schema, &schemas))
		path = fmt.Sprintf("the schemas of the search path (%s)", schemas.String)
	} else {
		err = s.rows(ctx, db, "asking for the database", s.query(32).add("SELECT DATABASE()"), scanInto(&schema))
		path = "a database: name one in the DSN, or give the table with its database"
	}
	if err == nil && schema.Valid {
		s.foundIn(schema.String)
	}
	return path, err
}
