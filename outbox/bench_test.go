package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// payload200 is the size that the figures in docs/BENCHMARKS.md are for.
var payload200 = outbox.RawJSON(`{"order":"` + strings.Repeat("x", 186) + `"}`)

func BenchmarkSeal(b *testing.B) {
	type order struct {
		ID    string `json:"id"`
		Items []int  `json:"items"`
	}
	for name, env := range map[string]outbox.Envelope{
		"raw":     {EventType: "OrderPlaced", Payload: payload200},
		"json":    {EventType: "OrderPlaced", Payload: outbox.JSON(order{"o-1", []int{1, 2, 3}})},
		"headers": {EventType: "OrderPlaced", Payload: payload200, Headers: map[string]string{"source": "api", "trace": "0af7651916cd43dd8448eb211c80319c"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := env.Validate(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// noInsert is a store whose Insert does nothing, to see what is ours.
type noInsert struct{ *outboxtest.Store }

func (noInsert) Insert(context.Context, outbox.Execer, []outbox.Envelope, string, time.Time) error {
	return nil
}

// BenchmarkWriteOverhead is a transaction with a single event, and with 100, without an INSERT.
func BenchmarkWriteOverhead(b *testing.B) {
	for _, events := range []int{1, 100} {
		b.Run(fmt.Sprintf("events=%d", events), func(b *testing.B) {
			store := noInsert{outboxtest.NewStore()}
			ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.WriterOnly{}})
			require.NoError(b, err)
			w := ob.Writer()
			envs := slices.Repeat([]outbox.Envelope{{EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "o-1", Payload: payload200}}, events)
			b.ReportAllocs()
			for b.Loop() {
				scope := outboxtest.NewScope(store.DB())
				if _, err := w.WriteScope(b.Context(), scope, envs); err != nil {
					b.Fatal(err)
				}
				scope.Commit()
			}
		})
	}
}

// benchStore opens a database with an outbox table and a business table.
func benchStore(b *testing.B, target testdb.Target) (*testdb.DB, *sqlstore.Store, string) {
	b.Helper()
	db := testdb.Open(b, target)
	store, err := sqlstore.Detect(b.Context(), db.DB)
	require.NoError(b, err)
	require.NoError(b, store.CreateSchema(b.Context(), db.DB))
	_, err = db.ExecContext(b.Context(), "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, item VARCHAR(64))")
	require.NoError(b, err)
	insert := "INSERT INTO orders (id, item) VALUES (?, ?)"
	if db.Kind == testdb.Postgres {
		insert = "INSERT INTO orders (id, item) VALUES ($1, $2)"
	}
	return db, store, insert
}

// BenchmarkWrite is a transaction with one business row, without and with one
// event.
func BenchmarkWrite(b *testing.B) {
	for _, target := range adaptertest.Main() {
		for _, events := range []int{0, 1, 100} {
			b.Run(fmt.Sprintf("%s/events=%d", target.Name, events), func(b *testing.B) {
				db, store, insert := benchStore(b, target)
				ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.WriterOnly{}})
				require.NoError(b, err)
				a := adaptertest.Adapter(b, db.DB, ob.Writer())
				envs := make([]outbox.Envelope, events)
				for i := range envs {
					envs[i] = outbox.Envelope{EventType: "OrderPlaced", AggregateType: "Order", Payload: payload200}
				}
				n := 0
				b.ReportAllocs()
				for b.Loop() {
					n++
					err := a.RunInTx(b.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
						if _, err := tx.ExecContext(ctx, insert, fmt.Sprint(n), "tea"); err != nil {
							return err
						}
						_, err := a.WriteAll(ctx, tx, envs)
						return err
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkHot is one event at a time from the commit to its listener.
func BenchmarkHot(b *testing.B) {
	for _, target := range adaptertest.Main() {
		b.Run(target.Name, func(b *testing.B) {
			db, store, _ := benchStore(b, target)
			ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store})
			require.NoError(b, err)
			var committed, latency atomic.Int64
			heard := make(chan struct{})
			require.NoError(b, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
				latency.Add(time.Now().UnixNano() - committed.Load())
				heard <- struct{}{}
				return nil
			}))))
			require.NoError(b, ob.Start(b.Context()))
			a := adaptertest.Adapter(b, db.DB, ob.Writer())
			env := outbox.Envelope{EventType: "Said", Payload: payload200}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				err := a.RunInTx(b.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
					scope, _ := outbox.ScopeFromContext(ctx, db.DB)
					// The first callback to be registered is the first to run.
					if err := scope.AfterCommit(func(context.Context) { committed.Store(time.Now().UnixNano()) }); err != nil {
						return err
					}
					_, err := a.Write(ctx, tx, env)
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
				<-heard
			}
			b.ReportMetric(float64(latency.Load())/float64(n), "ns-commit-to-listener")
			require.NoError(b, ob.Close(context.Background()))
		})
	}
}

// BenchmarkDrain is a backlog of 100,000 rows delivered to a listener that does
// nothing. Postponed rows, such as retries, are leased before they are delivered.
func BenchmarkDrain(b *testing.B) {
	for _, target := range adaptertest.Main() {
		for name, mode := range map[string]outbox.Mode{"single": outbox.SingleNode{}, "multi": outbox.MultiNode{}} {
			b.Run(target.Name+"/"+name, func(b *testing.B) { drain(b, target, mode, benchEvent) })
			b.Run(target.Name+"/"+name+"/postponed", func(b *testing.B) {
				env := benchEvent
				env.OccurredAt, env.DeliverAfter = time.Now().Add(-time.Hour), time.Minute
				drain(b, target, mode, env)
			})
		}
	}
}

// BenchmarkDrainBatch is what DefaultPollBatch was chosen by.
func BenchmarkDrainBatch(b *testing.B) {
	for _, target := range adaptertest.Main() {
		for _, size := range []int{50, 200, 500, 1000} {
			b.Run(fmt.Sprintf("%s/batch=%d", target.Name, size), func(b *testing.B) {
				drain(b, target, outbox.MultiNode{Poll: outbox.PollOptions{BatchSize: size}, Dispatch: outbox.DispatchOptions{ColdCapacity: max(2*size, 1000)}}, benchEvent)
			})
		}
	}
}

// benchEvent is the event of a backlog.
var benchEvent = outbox.Envelope{EventType: "Said", Payload: payload200}

func drain(b *testing.B, target testdb.Target, mode outbox.Mode, env outbox.Envelope) {
	drainTo(b, target, mode, env, func(heard func(int)) outbox.Listener {
		return outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { heard(1); return nil })
	})
}

// drainTo delivers the backlog to the listener, which says how many events it heard.
func drainTo(b *testing.B, target testdb.Target, mode outbox.Mode, env outbox.Envelope, listener func(heard func(int)) outbox.Listener) {
	db, store, _ := benchStore(b, target)
	backlog := 100_000
	if testing.Short() {
		backlog = 10_000
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		fillWith(b, db, store, env, backlog)
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: mode})
		require.NoError(b, err)
		var heard atomic.Int64
		all := make(chan struct{})
		require.NoError(b, ob.Register(outbox.On("", "Said", listener(func(n int) {
			if heard.Add(int64(n)) == int64(backlog) {
				close(all)
			}
		}))))
		b.StartTimer()
		require.NoError(b, ob.Start(b.Context()))
		<-all
		require.NoError(b, ob.Close(context.Background()))
	}
	b.ReportMetric(float64(backlog)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(backlog)/float64(b.N), "ns/event")
}

func fill(b *testing.B, db *testdb.DB, store *sqlstore.Store, n int) {
	b.Helper()
	fillWith(b, db, store, benchEvent, n)
}

func fillWith(b *testing.B, db *testdb.DB, store *sqlstore.Store, env outbox.Envelope, n int) {
	b.Helper()
	w, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(b, err)
	a := adaptertest.Adapter(b, db.DB, w.Writer())
	envs := make([]outbox.Envelope, 5000)
	for i := range envs {
		envs[i] = env
	}
	for ; n > 0; n -= len(envs) {
		err := a.RunInTx(b.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := a.WriteAll(ctx, tx, envs[:min(n, len(envs))])
			return err
		})
		require.NoError(b, err)
	}
}

// BenchmarkBatch is a backlog of 100,000 rows, one by one and in batches, delivered to a
// listener that waits a while in each call, as for an answer from a broker.
func BenchmarkBatch(b *testing.B) {
	for _, target := range adaptertest.Main() {
		for _, wait := range []time.Duration{0, time.Millisecond} {
			answer := func() {
				if wait > 0 {
					time.Sleep(wait)
				}
			}
			b.Run(fmt.Sprintf("%s/one by one/%s", target.Name, wait), func(b *testing.B) {
				drainTo(b, target, outbox.SingleNode{}, benchEvent, func(heard func(int)) outbox.Listener {
					return outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { answer(); heard(1); return nil })
				})
			})
			b.Run(fmt.Sprintf("%s/in batches/%s", target.Name, wait), func(b *testing.B) {
				drainTo(b, target, outbox.SingleNode{}, benchEvent, func(heard func(int)) outbox.Listener {
					return outbox.BatchListener(outbox.BatchOptions{Size: 100, Wait: 10 * time.Millisecond}, func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
						answer()
						heard(len(batch))
						return nil, nil
					})
				})
			})
		}
	}
}
