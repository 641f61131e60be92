package faultrun

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/proof/checker"
)

// writes is a way to write in transactions.
type writes interface {
	// InTx calls fn in a transaction, and in a savepoint when ctx carries a transaction.
	InTx(ctx context.Context, fn func(ctx context.Context, tx transaction) error) error
}

// transaction is a transaction that a framework has begun.
type transaction interface {
	Exec(ctx context.Context, query string) error
	Number(ctx context.Context, query string) (int, error)
	// Write writes events, and returns their ids in order: instead of an event that its unique key
	// keeps out, the id of the event that has the key.
	Write(ctx context.Context, envs []outbox.Envelope) ([]string, error)
	// Change cancels, reschedules or replaces events that wait.
	Change(ctx context.Context, which outbox.Waiting, c outbox.Change) (outbox.TakenBack, error)
}

// write makes a writer's transactions.
func (n *node) write(ctx context.Context, writer string, w writes) {
	for i := 0; (n.Transactions == 0 || i < n.Transactions) && ctx.Err() == nil; i++ {
		n.transact(fmt.Sprintf("%s-%d", writer, i), w)
		pause(ctx, n.Pace)
	}
}

var errRolledBack = errors.New("the run rolls this transaction back")

// transact makes a transaction and records how the transaction ended. The end of the process does
// not end the transaction, so that the record is true.
func (n *node) transact(id string, w writes) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rollBack, does := n.chance("roll back", id) < n.RollBack, n.orderAll
	if n.chance("take back", id) < n.TakeBack {
		does = n.takeBack
	}
	var concerned, committing bool
	err := w.InTx(ctx, func(ctx context.Context, tx transaction) (err error) {
		if concerned, err = does(ctx, id, w, tx); err != nil {
			return err
		}
		if rollBack {
			return errRolledBack
		}
		n.log.Add(checker.Record{Op: checker.OpCommit, Tx: id})
		committing = true
		return nil
	})
	if err != nil && committing && !concerned { // the error is that of the driver
		err = fmt.Errorf("%w: %w", outbox.ErrOutcomeUnknown, err)
	}
	n.log.Add(ended(id, err))
	n.reminders.end(id, err == nil || errors.Is(err, outbox.ErrOutcomeUnknown))
}

// orderAll writes an order with events of all kinds, some of them in a savepoint. concerned is true: the
// outbox makes sure that the error of COMMIT tells whether the transaction may have committed.
func (n *node) orderAll(ctx context.Context, id string, w writes, tx transaction) (concerned bool, err error) {
	events, err := n.order(ctx, id, tx)
	if err != nil {
		return true, err
	}
	if n.chance("savepoint", id) < n.RollBack {
		if err := n.inSavepoint(ctx, id, w, events[0]); err != nil {
			return true, err
		}
	}
	for _, write := range []func(ctx context.Context, id, where string, tx transaction, like checker.Event) error{n.once, n.latest} {
		if err := write(ctx, id, "", tx, events[0]); err != nil {
			return true, err
		}
	}
	return true, n.remind(ctx, id, tx)
}

// ended is the record of how a transaction ended.
func ended(id string, err error) checker.Record {
	r := checker.Record{Op: checker.OpCommitted, Tx: id}
	if err != nil {
		r.Op, r.Error = checker.OpRolledBack, err.Error()
		if errors.Is(err, outbox.ErrOutcomeUnknown) {
			r.Op = checker.OpUnknown
		}
	}
	return r
}

// order writes the business row and one to three events of a single key, which order locks.
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
	events, occurred := make([]checker.Event, 1+n.chance("events", id)%3), false
	for i := range events {
		events[i] = checker.Event{
			ID: fmt.Sprintf("%s-%d", id, i), Type: n.typeOf(id, i),
			Key: key, Seq: 10*number + i, Delayed: n.chance("delay", id, i) < n.Delay,
		}
		if events[i].Type == Brief {
			occurred, events[i].Delayed = true, n.chance("delay", id, i) < 40
		}
	}
	if now := n.clock().UTC().Truncate(time.Microsecond); occurred {
		for i := range events {
			events[i].Occurred = now
		}
	}
	n.log.Add(checker.Record{Op: checker.OpWrite, Tx: id, Events: events})
	if _, err := n.writeFrom(ctx, id, tx, events); err != nil || n.chance("spoil", id) >= n.Spoil {
		return events, err
	}
	return events, tx.Exec(ctx, quoted("UPDATE outbox_event SET attempts = -7 WHERE event_id = '%s'", events[0].ID))
}

// typeOf is the type of an event.
func (n *node) typeOf(id string, i int) string {
	types := n.seldom()
	if len(types) == 0 || n.chance("seldom", id, i) >= n.Seldom {
		types = Types
	}
	return types[n.chance("type", id, i)%len(types)]
}

// once writes events with unique keys: sometimes one event, sometimes two, perhaps with the same key.
// The same transaction uses the same keys in and after its savepoint, and the keys in order, so that
// two transactions do not wait for each other.
func (n *node) once(ctx context.Context, id, where string, tx transaction, like checker.Event) error {
	if n.chance("unique", id) >= n.Unique {
		return nil
	}
	events := make([]checker.Event, 1+n.chance("uniques", id)%2)
	key := n.chance("unique key", id) % uniqueKeys
	for i := range events {
		events[i] = checker.Event{
			ID: fmt.Sprintf("%s%s-u%d", id, where, i), Type: Once, Key: like.Key, Seq: like.Seq + 6 + i,
			Unique: fmt.Sprintf("u%d", key), Delayed: n.chance("delay unique", id, i) < 70,
		}
		if key+1 < uniqueKeys {
			key += n.chance("next key", id) % 2
		}
	}
	n.log.Add(checker.Record{Op: checker.OpWrite, Tx: id, Events: events})
	ids, err := n.writeFrom(ctx, id, tx, events)
	if err != nil {
		return err
	}
	for i, e := range events {
		if ids[i] != e.ID {
			n.log.Add(checker.Record{Op: checker.OpKeptOut, Tx: id, Events: events[i : i+1], Event: ids[i]})
		}
	}
	if where == "" {
		return nil
	}
	n.log.Add(checker.Record{Op: checker.OpSavepoint, Tx: id, Events: events})
	return nil
}

// uniqueKeys is how many unique keys the events of a run have.
const uniqueKeys = 3

// writeFrom writes events, sometimes in a session whose names resolve elsewhere.
func (n *node) writeFrom(ctx context.Context, id string, tx transaction, events []checker.Event) (ids []string, err error) {
	leave, back := n.abroad()
	if leave == "" || n.chance("abroad", id) >= n.Abroad {
		return tx.Write(ctx, n.envelopes(events))
	}
	for _, step := range []func() error{
		func() error { return tx.Exec(ctx, leave) },
		func() (err error) { ids, err = tx.Write(ctx, n.envelopes(events)); return err },
		func() error { return tx.Exec(ctx, back) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// abroad are the statements that change how the names of a session resolve, and that change it
// back.
func (n *node) abroad() (leave, back string) {
	switch dialect(n.Driver) {
	case inbox.Postgres:
		return "SET LOCAL search_path TO " + abroadSchema, "SET LOCAL search_path TO DEFAULT"
	case inbox.MySQL:
		return "USE information_schema", "USE `" + n.database + "`"
	default:
		return "", ""
	}
}

// inSavepoint writes an event in a savepoint and rolls the savepoint back.
func (n *node) inSavepoint(ctx context.Context, id string, w writes, like checker.Event) error {
	taken := []checker.Event{{ID: id + "-taken", Type: Plain, Key: like.Key, Seq: like.Seq + 5}}
	n.log.Add(checker.Record{Op: checker.OpWrite, Tx: id, Events: taken})
	err := w.InTx(ctx, func(ctx context.Context, tx transaction) error {
		if _, err := tx.Write(ctx, n.envelopes(taken)); err != nil {
			return err
		}
		if err := n.once(ctx, id, "-taken", tx, taken[0]); err != nil {
			return err
		}
		if err := n.latest(ctx, id, "-taken", tx, taken[0]); err != nil {
			return err
		}
		return errRolledBack
	})
	if !errors.Is(err, errRolledBack) {
		return err
	}
	n.log.Add(checker.Record{Op: checker.OpSavepoint, Tx: id, Events: taken})
	return nil
}

// Secrets are in the payload, the headers and the tenant of every event, and in the key of every
// request. No log, and no row's last_error, may have them.
var Secrets = []string{"payload-54321-secret", "header-54321-secret", "tenant-54321-secret", "key-54321-secret"}

func (n *node) envelopes(events []checker.Event) []outbox.Envelope {
	envs := make([]outbox.Envelope, len(events))
	for i, e := range events {
		envs[i] = outbox.Envelope{
			EventID: e.ID, EventType: outbox.EventType(e.Type), AggregateType: "Thing", AggregateID: e.Key,
			OccurredAt: e.Occurred, TenantID: Secrets[2] + "-" + e.Key, UniqueKey: e.Unique, KeepLatest: e.Latest, AvailableAt: e.Due,
		}
		envs[i].Payload, envs[i].Headers = content(e)
		switch {
		case !e.Due.IsZero():
		case e.Delayed && e.Type == Brief: // half of them expire before they are due
			envs[i].DeliverAfter = n.Expires * time.Duration(1+n.chance("delayed", e.ID)) / 40
		case e.Delayed:
			envs[i].DeliverAfter = time.Duration(1+n.chance("delayed", e.ID)*5) * time.Millisecond
		}
	}
	return envs
}
