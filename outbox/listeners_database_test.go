package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// writeSaid writes n events in one transaction.
func writeSaid(t testing.TB, ob *outbox.Outbox, db *testdb.DB, n int) {
	t.Helper()
	envs := make([]outbox.Envelope, n)
	for i := range envs {
		envs[i] = said(fmt.Sprintf("e%d", i))
		envs[i].Headers = map[string]string{"k": "v"}
	}
	a := adaptertest.Adapter(t, db.DB, ob.Writer())
	require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := a.WriteAll(ctx, tx, envs)
		return err
	}))
}

// rowCounts counts the rows by status, those of single listeners and the others.
func rowCounts(t testing.TB, db *testdb.DB) map[string]int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT status, headers FROM outbox_event")
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	counts := map[string]int{}
	for rows.Next() {
		var status outbox.Status
		var headers sql.NullString
		require.NoError(t, rows.Scan(&status, &headers))
		var decoded map[string]string
		if headers.Valid {
			require.NoError(t, json.Unmarshal([]byte(headers.String), &decoded))
		}
		counts[status.String()+" "+decoded[outbox.HeaderListener]]++
	}
	require.NoError(t, rows.Err())
	return counts
}

// Three listeners: one succeeds, one fails twice, one always. On the hot path with
// room, on the cold path when the writer has none, and on three nodes.
func TestListenersOnEveryDatabase(t *testing.T) {
	t.Parallel()
	dispatch := outbox.DispatchOptions{MaxAttempts: 4}
	small := outbox.DispatchOptions{MaxAttempts: 4, HotCapacity: 1}
	poll := outbox.PollOptions{Interval: 20 * time.Millisecond, BatchSize: 7}
	for name, modes := range map[string][]outbox.Mode{
		"hot path":    {outbox.SingleNode{Dispatch: dispatch, Poll: poll}},
		"cold path":   {outbox.SingleNode{Dispatch: small, Poll: poll}},
		"three nodes": {outbox.MultiNode{Dispatch: small, Poll: poll}, outbox.MultiNode{Dispatch: dispatch, Poll: poll}, outbox.MultiNode{Dispatch: dispatch, Poll: poll}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) { runListeners(t, db, modes) })
		})
	}
}

func runListeners(t *testing.T, db *testdb.DB, modes []outbox.Mode) {
	const events = 100
	store, err := sqlstore.Detect(t.Context(), db.DB)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	var h hearing
	bindings := []outbox.Binding{h.on("search", succeeds), h.on("mail", failsTimes(2)), h.on("audit", failsTimes(100))}
	var nodes []*outbox.Outbox
	var pools []*testdb.DB
	for _, mode := range modes {
		pool := db.Reopen(t)
		ob, err := outbox.New(outbox.Config{DB: pool.DB, Store: store, Mode: mode, Logger: quiet, RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, 5*time.Millisecond)})
		require.NoError(t, err)
		require.NoError(t, ob.Register(bindings...))
		require.NoError(t, ob.Start(t.Context()))
		closeAfter(t, ob)
		nodes, pools = append(nodes, ob), append(pools, pool)
	}
	writeSaid(t, nodes[0], pools[0], events)
	want := map[string]int{"DONE ": events, "DONE mail": events, "DEAD audit": events}
	require.Eventually(t, func() bool { return fmt.Sprint(rowCounts(t, db)) == fmt.Sprint(want) }, time.Minute, 20*time.Millisecond, "%v", rowCounts(t, db))
	for _, ob := range nodes {
		require.NoError(t, ob.Close(context.Background()))
	}
	counts := map[string]int{}
	for _, call := range h.all() {
		counts[call]++
	}
	require.Len(t, counts, 8*events)
	for i := range events {
		for _, call := range []string{"search %s/0", "mail %s/0", "mail %s/1", "mail %s/2", "audit %s/0", "audit %s/1", "audit %s/2", "audit %s/3"} {
			require.Equal(t, 1, counts[fmt.Sprintf(call, fmt.Sprint("e", i))], call)
		}
	}
	for _, env := range h.seen {
		require.Equal(t, map[string]string{"k": "v"}, env.Headers)
	}
}

// listenerProcess delivers one event, until it is killed in the third listener.
func listenerProcess() {
	ctx := context.Background()
	db, err := sqltx.Open(os.Getenv(processDriver), os.Getenv(processDSN))
	check(err)
	store, err := sqlstore.Detect(ctx, db)
	check(err)
	check(store.CreateSchema(ctx, db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	say := func(name string, fn func() error) outbox.Binding {
		return outbox.On("", "Said", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
			fmt.Println(name)
			return fn()
		}), outbox.Named(name))
	}
	check(ob.Register(
		say("search", func() error { return nil }),
		say("mail", func() error { return errDown }),
		say("audit", func() error { select {} }),
	))
	check(ob.Start(ctx))
	a, err := sqltx.New(db, ob.Writer())
	check(err)
	check(a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := a.Write(ctx, tx, said("e"))
		return err
	}))
	select {}
}

// Nothing is stored before the last listener has answered, so a process that dies
// within it leaves the whole event to the next one.
func TestAProcessThatDiesBetweenListenersHasAllOfThemCalledAgain(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		process, nextLine := startProcess(t, "listeners", db)
		for _, name := range []string{"search", "mail", "audit"} {
			require.Equal(t, name, nextLine())
		}
		require.NoError(t, process.Kill())
		_, err := process.Wait()
		require.NoError(t, err)

		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		var h hearing
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, ob.Register(h.on("search", succeeds), h.on("mail", failsTimes(1)), h.on("audit", succeeds)))
		require.NoError(t, ob.Start(t.Context()))
		want := map[string]int{"DONE ": 1, "DONE mail": 1}
		require.Eventually(t, func() bool { return fmt.Sprint(rowCounts(t, db)) == fmt.Sprint(want) }, time.Minute, 5*time.Millisecond)
		require.NoError(t, ob.Close(context.Background()))
		require.Equal(t, []string{"search e/0", "mail e/0", "audit e/0", "mail e/1"}, h.all())
	})
}
