package faultrun

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outboxkit/outbox-go/internal/checker"
	"github.com/outboxkit/outbox-go/outbox"
)

// writes is a way to write in transactions.
type writes interface {
	// InTx calls fn in a transaction, and in a savepoint when ctx carries one.
	InTx(ctx context.Context, fn func(ctx context.Context, tx transaction) error) error
}

// transaction is one that a framework has begun.
type transaction interface {
	Exec(ctx context.Context, query string) error
	Number(ctx context.Context, query string) (int, error)
	Write(ctx context.Context, envs []outbox.Envelope) error
}

// via makes the way to write of an adapter.
func (n *node) via(adapter string) writes {
	switch adapter {
	case "sqltx":
		return viaSQL{n}
	default:
		panic(fmt.Sprintf("faultrun: there is no adapter %q", adapter))
	}
}

type viaSQL struct{ n *node }

func (v viaSQL) InTx(ctx context.Context, fn func(ctx context.Context, tx transaction) error) error {
	return v.n.adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, sqlTx{v.n, tx}) })
}

type sqlTx struct {
	n  *node
	tx *sql.Tx
}

func (t sqlTx) Exec(ctx context.Context, query string) error {
	_, err := t.tx.ExecContext(ctx, query)
	return err
}

func (t sqlTx) Number(ctx context.Context, query string) (number int, err error) {
	return number, t.tx.QueryRowContext(ctx, query).Scan(&number)
}

func (t sqlTx) Write(ctx context.Context, envs []outbox.Envelope) error {
	_, err := t.n.adapter.WriteAll(ctx, t.tx, envs)
	return err
}

// write makes a writer's transactions.
func (n *node) write(ctx context.Context, writer string, w writes) {
	for i := 0; (n.Transactions == 0 || i < n.Transactions) && ctx.Err() == nil; i++ {
		n.transact(fmt.Sprintf("%s-%d", writer, i), w)
		if n.Pace > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(n.Pace):
			}
		}
	}
}

var errRolledBack = errors.New("the run rolls this transaction back")

// transact makes one transaction and records how it ended. A transaction is not ended by
// the end of the process, so that what it records is what happened.
func (n *node) transact(id string, w writes) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rollBack, savepoint := n.chance("roll back", id) < n.RollBack, n.chance("savepoint", id) < n.RollBack
	err := w.InTx(ctx, func(ctx context.Context, tx transaction) error {
		events, err := n.order(ctx, id, tx)
		if err != nil {
			return err
		}
		if savepoint {
			n.inSavepoint(ctx, id, w, events[0])
		}
		if rollBack {
			return errRolledBack
		}
		return nil
	})
	ended := checker.Record{Op: checker.OpCommitted, Tx: id}
	if err != nil {
		ended.Op, ended.Error = checker.OpRolledBack, err.Error()
		if errors.Is(err, outbox.ErrOutcomeUnknown) {
			ended.Op = checker.OpUnknown
		}
	}
	n.log.Add(ended)
}

// order writes the business row and one to three events of one key, which it locks.
func (n *node) order(ctx context.Context, id string, tx transaction) ([]checker.Event, error) {
	key := keyName(rand.N(n.keys()))
	if err := tx.Exec(ctx, quoted("UPDATE fault_keys SET n = n + 1 WHERE id = '%s'", key)); err != nil {
		return nil, err
	}
	number, err := tx.Number(ctx, quoted("SELECT n FROM fault_keys WHERE id = '%s'", key))
	if err != nil {
		return nil, err
	}
	if err := tx.Exec(ctx, quoted("INSERT INTO fault_orders VALUES ('%s')", id)); err != nil {
		return nil, err
	}
	events := make([]checker.Event, 1+n.chance("events", id)%3)
	for i := range events {
		events[i] = checker.Event{
			ID: fmt.Sprintf("%s-%d", id, i), Type: Types[n.chance("type", id, i)%len(Types)],
			Key: key, Seq: 10*number + i,
		}
	}
	n.log.Add(checker.Record{Op: checker.OpWrite, Tx: id, Events: events})
	return events, tx.Write(ctx, envelopes(events))
}

// inSavepoint writes an event in a savepoint and takes it back.
func (n *node) inSavepoint(ctx context.Context, id string, w writes, like checker.Event) {
	taken := []checker.Event{{ID: id + "-taken", Type: Plain, Key: like.Key, Seq: like.Seq + 5}}
	n.log.Add(checker.Record{Op: checker.OpWrite, Tx: id, Events: taken})
	err := w.InTx(ctx, func(ctx context.Context, tx transaction) error {
		if err := tx.Write(ctx, envelopes(taken)); err != nil {
			return err
		}
		return errRolledBack
	})
	if errors.Is(err, errRolledBack) { // otherwise the transaction is lost, too
		n.log.Add(checker.Record{Op: checker.OpSavepoint, Tx: id, Events: taken})
	}
}

func envelopes(events []checker.Event) []outbox.Envelope {
	envs := make([]outbox.Envelope, len(events))
	for i, e := range events {
		envs[i] = outbox.Envelope{
			EventID: e.ID, EventType: outbox.EventType(e.Type), AggregateType: "Thing", AggregateID: e.Key,
			Payload: outbox.JSON(map[string]any{"key": e.Key, "seq": e.Seq}),
		}
	}
	return envs
}
