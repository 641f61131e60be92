package model_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/proof/model"
)

const maxAttempts = 3

// run is two nodes on one database.
type run struct {
	t     *testing.T
	db    *testdb.DB
	r     *recorder
	nodes [2]*outbox.Outbox
	first sync.Map // events that a listener had
}

// listen returns the listener of a node. The name of an event says what it does.
func (x *run) listen(node int) func(context.Context, outbox.Envelope) error {
	return func(_ context.Context, env outbox.Envelope) (err error) {
		x.r.note(env.EventID, node, model.Event{Kind: model.Began, Attempts: uint8(env.Attempts)})
		_, again := x.first.LoadOrStore(env.EventID, true)
		outcome := model.OutcomeDone
		switch what, _, _ := strings.Cut(env.EventID, "-"); {
		case what == "dies", what == "fails" && !again, once(&x.r.failures, 10):
			outcome, err = model.OutcomeRetry, errors.New("boom")
			if env.Attempts+1 >= maxAttempts {
				outcome = model.OutcomeDead
			}
		case what == "defers" && !again:
			outcome, err = model.OutcomeDeferred, outbox.Defer(time.Millisecond)
		case what == "stall" && !again: // longer than its lease
			<-time.After(leaseTime + rand.N(leaseTime))
		}
		x.r.note(env.EventID, node, model.Event{Kind: model.Ended, Outcome: outcome})
		return err
	}
}

// write writes one event and rolls back, or commits; in some cases the outbox is not told
// so. It reports whether the event is there. Nothing else is recorded meanwhile: on SQLite a statement that waits
// for the transaction would keep it from going on.
func (x *run) write(node int, id string, rollBack bool) bool {
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	tx, err := x.db.BeginTx(x.t.Context(), nil)
	require.NoError(x.t, err)
	s := &scope{Tx: tx, db: x.db.DB}
	env := outbox.Envelope{EventID: id, EventType: "Said", Payload: outbox.JSON(id)}
	_, err = x.nodes[node].Writer().WriteScope(x.t.Context(), s, []outbox.Envelope{env})
	require.NoError(x.t, err)
	s.over = true
	add := func(kind model.Kind) { x.r.add(id, node, "", model.Event{Kind: kind}) }
	if rollBack {
		require.NoError(x.t, tx.Rollback())
		add(model.RolledBack)
		s.rolledBack(nil)
		return false
	}
	require.NoError(x.t, tx.Commit())
	if add(model.Committing); once(&x.r.doubts, 6) {
		add(model.InDoubt)
		s.rolledBack(outbox.ErrOutcomeUnknown)
		return true
	}
	add(model.Committed)
	s.committed()
	return true
}

// Two nodes that claim row after row deliver some events. Answers are lost, statements come late, listeners
// fail and outlive their leases. The model allows the trace of each row.
func TestTheModelAllowsWhatHappens(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB, sqlstore.WithTenantIndex())
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		x := &run{t: t, db: db, r: newRecorder()}
		for node := range x.nodes {
			x.nodes[node], err = outbox.New(outbox.Config{
				DB: db.DB, Store: &recorded{store, x.r, node}, Logger: slog.New(slog.DiscardHandler),
				RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, 20*time.Millisecond),
				Mode: outbox.MultiNode{
					Dispatch: outbox.DispatchOptions{Workers: 4, HotCapacity: 4, MaxAttempts: maxAttempts},
					Poll:     outbox.PollOptions{Interval: 50 * time.Millisecond, BatchSize: 10},
					Claim:    outbox.ClaimOptions{LeaseDuration: leaseTime, Owner: fmt.Sprint("node-", node), TenantsInTurn: true},
				},
			})
			require.NoError(t, err)
			require.NoError(t, x.nodes[node].Register(outbox.On("", "Said", outbox.ListenerFunc(x.listen(node)))))
			require.NoError(t, x.nodes[node].Start(t.Context()))
		}
		var there []string
		for i := range 20 {
			for _, kind := range []string{"plain", "fails", "defers"} {
				if id := fmt.Sprintf("%s-%02d", kind, i); x.write(i%2, id, i%10 == 3) {
					there = append(there, id)
				}
			}
			for kind, every := range map[string]int{"stall": 4, "dies": 7} {
				if id := fmt.Sprintf("%s-%02d", kind, i); i%every == 0 && x.write(i%2, id, false) {
					there = append(there, id)
				}
			}
		}
		x.settle(len(there))
		for _, id := range there { // once
			if strings.HasPrefix(id, "dies") {
				require.NoError(t, x.nodes[0].DeadLetters().Replay(t.Context(), id))
			}
		}
		x.settle(len(there))
		for _, node := range x.nodes {
			require.NoError(t, node.Close(context.Background()))
		}
		x.r.late.Wait()
		x.replay(there)
	})
}

// settle waits until all rows are DONE or DEAD.
func (x *run) settle(rows int) {
	require.Eventually(x.t, func() bool {
		var n int
		err := x.db.QueryRowContext(x.t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE status IN (1, 3)").Scan(&n)
		return err == nil && n == rows
	}, 5*time.Minute, 50*time.Millisecond)
}

// replay goes through the traces.
func (x *run) replay(there []string) {
	m, events, kinds := model.Leases{MaxAttempts: maxAttempts}, 0, map[model.Kind]int{}
	for id, row := range x.r.rows {
		if _, err := m.Replay(row.records); err != nil {
			for i, r := range row.records {
				x.t.Logf("%s %3d. %s", id, i+1, r)
			}
			x.t.Errorf("%s: %v", id, err)
		}
		events += len(row.records)
		for _, r := range row.records {
			kinds[r.Kind]++
		}
	}
	x.t.Logf("%d rows, %d of them committed, %d events; %d takeovers, %d answers lost, %d given up, %d renewals, %d in doubt",
		len(x.r.rows), len(there), events, kinds[model.Expired], kinds[model.AnswerLost], kinds[model.GaveUp], kinds[model.Renewed], kinds[model.InDoubt])
	for _, kind := range []model.Kind{model.Expired, model.AnswerLost, model.GaveUp, model.InDoubt, model.Released, model.RolledBack, model.Replayed} {
		require.Positive(x.t, kinds[kind], "the run had none of kind %d", kind)
	}
}
