package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// node is a process that writes states and delivers them.
type node struct{ *sqltx.Adapter }

// states are the states of a key that listeners got.
type states struct {
	mu   sync.Mutex
	got  map[string]map[int]bool
	last int
	done chan string // a key whose last state was delivered
}

func (s *states) add(key string, state int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.got[key] == nil {
		s.got[key] = map[int]bool{}
	}
	if !s.got[key][state] && state == s.last {
		s.done <- key
	}
	s.got[key][state] = true
}

func startNode(t *testing.T, db *testdb.DB, mode outbox.Mode, got *states) node {
	t.Helper()
	pool := sqltx.Watch(db.Reopen(t).DB)
	ob, err := outbox.New(outbox.Config{DB: pool, Store: uniqueFor(db.Kind), Mode: mode, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, ob.Register(outbox.On("Account", "Changed", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		state, err := outbox.Decode[int](env)
		got.add(env.AggregateID, state)
		return err
	}))))
	require.NoError(t, ob.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, ob.Close(context.Background()))
		require.NoError(t, pool.Close())
	})
	a, err := sqltx.New(pool, ob.Writer())
	require.NoError(t, err)
	return node{a}
}

var errUndo = errors.New("rolled back")

// try changes the account, and writes its new state in the same transaction.
func (n node) try(t *testing.T, key string, undo bool) error {
	return n.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
		where := " WHERE id = '" + key + "'"
		if _, err := tx.ExecContext(ctx, "UPDATE account SET state = state + 1"+where); err != nil {
			return err
		}
		var state int
		if err := tx.QueryRowContext(ctx, "SELECT state FROM account"+where).Scan(&state); err != nil {
			return err
		}
		_, err := n.Write(ctx, tx, outbox.Envelope{
			EventType: "Changed", AggregateType: "Account", AggregateID: key, Payload: outbox.JSON(state),
			UniqueKey: key, KeepLatest: true, DeliverAfter: time.Duration(state%3) * time.Millisecond,
		})
		if err == nil && undo {
			return errUndo
		}
		return err
	})
}

// write changes the account, and writes its new state in the same transaction, until no conflict is in
// the way.
func (n node) write(t *testing.T, key string, undo bool) error {
	for {
		if err := n.try(t, key, undo); !sqlerr.IsConflict(err) {
			return err
		}
	}
}

// Writers of a state and an outbox that delivers meet at any moment: the last state that was committed is
// delivered.
func TestTheLastStateIsDelivered(t *testing.T) {
	t.Parallel()
	const writers, writes, keys = 3, 20, 2
	for name, modes := range map[string][]outbox.Mode{
		"single node": {outbox.SingleNode{}}, "many nodes": {outbox.MultiNode{}, outbox.MultiNode{}}, "ordered": {outbox.Ordered{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
				uniqueTable(t, db)
				for _, statement := range []string{"CREATE TABLE account (id VARCHAR(9) PRIMARY KEY, state INT)", "INSERT INTO account VALUES ('k0', 0), ('k1', 0)"} {
					_, err := db.ExecContext(t.Context(), statement)
					require.NoError(t, err)
				}
				got := &states{got: map[string]map[int]bool{}, last: writers * writes, done: make(chan string, keys)}
				var nodes []node
				for _, mode := range modes {
					nodes = append(nodes, startNode(t, db, mode, got))
				}
				var all sync.WaitGroup
				for w := range writers * keys {
					all.Go(func() {
						n, key := nodes[w%len(nodes)], fmt.Sprint("k", w/writers)
						for i := range writes {
							if i%5 == 0 {
								assert.ErrorIs(t, n.write(t, key, true), errUndo)
							}
							assert.NoError(t, n.write(t, key, false))
						}
					})
				}
				all.Wait()
				for range keys {
					<-got.done
				}
				var left int
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2) AND unique_key IS NOT NULL AND locked_by IS NULL").Scan(&left))
				require.Zero(t, left, "a state is waiting behind the last one")
			})
		})
	}
}
