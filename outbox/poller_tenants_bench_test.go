package outbox_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// BenchmarkTenantBesideAFlood is the time from a commit of one tenant's event to its
// listener, which takes 5 ms for each event, while the table is idle, and while another
// tenant has 100,000 events in it. Tenants take turns, and the queues have a place for
// each worker.
func BenchmarkTenantBesideAFlood(b *testing.B) {
	const workers = 16
	queues := outbox.DispatchOptions{Workers: workers, HotCapacity: workers, ColdCapacity: workers}
	for _, target := range adaptertest.Main() {
		for name, flood := range map[string]int{"idle": 0, "flood": 100_000} {
			b.Run(target.Name+"/"+name, func(b *testing.B) {
				mode := outbox.MultiNode{Dispatch: queues, Claim: outbox.ClaimOptions{TenantsInTurn: true}}
				tenantBesideAFlood(b, target, mode, flood)
			})
		}
	}
}

func tenantBesideAFlood(b *testing.B, target testdb.Target, mode outbox.Mode, flood int) {
	db := testdb.Open(b, target)
	store, err := sqlstore.Detect(b.Context(), db.DB, sqlstore.WithTenantIndex())
	require.NoError(b, err)
	require.NoError(b, store.CreateSchema(b.Context(), db.DB))
	w, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(b, err)
	// The events of both tenants come from another process: the poller delivers them.
	other := adaptertest.Adapter(b, db.DB, w.Writer())
	write := func(envs []outbox.Envelope) {
		require.NoError(b, other.RunInTx(b.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := other.WriteAll(ctx, tx, envs)
			return err
		}))
	}
	for ; flood > 0; flood -= 5000 {
		write(ofTenant("A", 5000))
	}
	ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: mode, Logger: quiet})
	require.NoError(b, err)
	heard := make(chan time.Time, 1)
	require.NoError(b, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		if env.TenantID == "B" {
			heard <- time.Now()
		}
		<-time.After(5 * time.Millisecond)
		return nil
	}))))
	require.NoError(b, ob.Start(b.Context()))
	var took []time.Duration
	for b.Loop() {
		committed := time.Now()
		write(ofTenant("B", 1))
		ob.Wake() // as a notification of the other process does
		took = append(took, (<-heard).Sub(committed))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	require.NoError(b, ob.Close(context.Background()))
}
