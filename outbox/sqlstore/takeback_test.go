package sqlstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// dyingTx is a transaction in which an event dies after each statement that reads.
type dyingTx struct {
	*sql.Tx
	die func()
}

func (d dyingTx) QueryTexts(ctx context.Context, q string, args ...any) ([]string, error) {
	defer d.die()
	return outbox.QueryTexts(ctx, d.Tx, q, args...)
}

// An event in hand that dies while a transaction tries to change it is counted once. On SQLite nothing
// happens while a transaction writes, and on MySQL the transaction has a lock on the row.
func TestAnEventThatDiesWhileItIsTakenBackIsCountedOnce(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]outbox.Waiting{
		"id": {EventIDs: []string{"a"}}, "key": {Kind: outbox.EventKind{EventType: "Said", AggregateType: "Thing"}, AggregateID: "7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, testdb.Main()[:1], func(t *testing.T, db *testdb.DB) {
				ctx, now := t.Context(), time.Now().UTC().Truncate(time.Millisecond)
				store := storeFor(db.Kind, sqlstore.WithKeyIndex())
				require.NoError(t, store.CreateSchema(ctx, db.DB))
				write, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				event := outbox.Envelope{EventID: "a", EventType: "Said", AggregateType: "Thing", AggregateID: "7", Payload: outbox.JSON(1), OccurredAt: now}
				require.NoError(t, store.Insert(ctx, write, []outbox.Envelope{event}, "", now))
				require.NoError(t, write.Commit())

				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback() }()
				reads := 0
				n, err := store.TakeBack(ctx, dyingTx{tx, func() {
					if reads++; reads == 2 { // the first look after the change
						_, err := store.Mark(ctx, db.DB, outbox.OutcomeDead, []outbox.Mark{{EventID: "a"}})
						require.NoError(t, err)
					}
				}}, which, outbox.Change{Cancel: true})
				require.NoError(t, err)
				require.Equal(t, outbox.TakenBack{InHand: 1}, n)
				require.Equal(t, 2, reads)
			})
		})
	}
}
