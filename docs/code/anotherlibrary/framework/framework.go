// Package framework stands for a database library that is built on database/sql.
package framework

import (
	"context"
	"database/sql"
)

// DB is the library's handle on a pool.
type DB struct{ pool *sql.DB }

// New makes a handle on a pool.
func New(pool *sql.DB) *DB { return &DB{pool} }

// Pool is the pool below.
func (db *DB) Pool() *sql.DB { return db.pool }

// Begin begins a transaction.
func (db *DB) Begin(ctx context.Context, opts *sql.TxOptions) (*Tx, error) {
	tx, err := db.pool.BeginTx(ctx, opts)
	return &Tx{tx}, err
}

// Tx is the library's transaction.
type Tx struct{ tx *sql.Tx }

// SQLTx is the transaction below.
func (tx *Tx) SQLTx() *sql.Tx { return tx.tx }
