package main

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

const pgxByHand = "by hand, pgx"

// pgxContenders write in transactions of pgx, without database/sql.
func pgxContenders() []contender {
	on, works := []testdb.Kind{testdb.Postgres}, []string{"write", "many"}
	return []contender{
		{name: pgxByHand, on: on, works: works, open: openPgxHand},
		{name: "outbox, pgx", against: pgxByHand, on: on, works: works, open: openPgxOutbox},
	}
}

// insertOrderPgx is the business statement.
func insertOrderPgx(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, insertOrder(testdb.Postgres), id, "tea")
	return err
}

// pgxHand writes by pgx; the rest is done by bare statements.
type pgxHand struct {
	*bareSystem

	pgx *pgxpool.Pool
}

func openPgxHand(ctx context.Context, db *database) (system, error) {
	pool, err := openWithTable(ctx, db)
	if err != nil {
		return nil, err
	}
	s := &pgxHand{bareSystem: &bareSystem{db: db, pool: pool, deliver: bareMark}}
	s.pgx, err = db.pgxPool(ctx)
	return s, err
}

func (s *pgxHand) Write(ctx context.Context, first, n int) error {
	err := pgx.BeginFunc(ctx, s.pgx, func(tx pgx.Tx) error {
		if err := insertOrderPgx(ctx, tx, strconv.Itoa(first)); err != nil {
			return err
		}
		if n == 1 {
			now := time.Now().UTC()
			_, err := tx.Exec(ctx, insertColumns+"VALUES ($1,$2,$3,$4,NULL,$5,NULL,0,0,$6,$7)",
				eventID(first), eventType, aggregateType, aggregateID, payload(first), now, now)
			return err
		}
		text, args := insertUnnest(first, n)
		_, err := tx.Exec(ctx, text, args...)
		return err
	})
	if err == nil && s.written != nil {
		s.written <- first
	}
	return err
}

func (s *pgxHand) Close() error {
	s.pgx.Close()
	return s.bareSystem.Close()
}

// pgxOutbox is this library on a pool of pgx.
type pgxOutbox struct {
	*outboxSystem

	pgx *pgxpool.Pool
}

func openPgxOutbox(ctx context.Context, db *database) (system, error) {
	pool, err := db.pgxPool(ctx, outboxpgx.Follow)
	if err != nil {
		return nil, err
	}
	kind := outboxKind{mode: outbox.SingleNode{}, write: func(_ *database, _ *sql.DB, w *outbox.Writer) (outboxWrite, error) {
		return viaPgx(pool, w)
	}}
	s, err := kind.openOn(ctx, db, outboxpgx.DB(pool))
	return &pgxOutbox{s, pool}, err
}

func viaPgx(pool *pgxpool.Pool, w *outbox.Writer) (outboxWrite, error) {
	a, err := outboxpgx.New(pool, w)
	return func(ctx context.Context, id string, envs []outbox.Envelope) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := insertOrderPgx(ctx, tx, id); err != nil {
				return err
			}
			_, err := a.WriteAll(ctx, tx, envs)
			return err
		})
	}, err
}

func (s *pgxOutbox) Close() error {
	err := s.outboxSystem.Close()
	s.pgx.Close()
	return err
}
