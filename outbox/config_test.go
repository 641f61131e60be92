package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestNewReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	_, err := outbox.New(outbox.Config{
		Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: -1, HotCapacity: -2, ColdCapacity: -3, MaxAttempts: -4, DrainTimeout: -5, ListenerTimeout: -6, MarkInterval: -7},
			Poll:     outbox.PollOptions{Interval: -1, BatchSize: -2, SkipRecent: -3},
			Claim:    outbox.ClaimOptions{LeaseDuration: -1, Owner: string(make([]byte, 129))},
		},
		Purge:        &outbox.PurgeOptions{Retention: -2, BatchSize: -1, Interval: -1, OnDone: 9},
		Interceptors: []outbox.Interceptor{nil},
		RetryPolicy:  outbox.RetryPolicyFunc(nil),
	})
	for _, field := range []string{
		"Config.DB", "Config.Store", "Config.Mode.Dispatch.Workers is -1", "Config.Mode.Dispatch.HotCapacity is -2",
		"Config.Mode.Dispatch.ColdCapacity is -3", "Config.Mode.Dispatch.MaxAttempts is -4",
		"Config.Mode.Dispatch.DrainTimeout is -5ns", "Config.Mode.Dispatch.ListenerTimeout is -6ns", "Config.Mode.Dispatch.MarkInterval is -7ns",
		"Config.Mode.Poll.Interval is -1ns", "Config.Mode.Poll.BatchSize is -2", "Config.Mode.Poll.SkipRecent is -3ns",
		"Config.Mode.Claim.LeaseDuration is -1ns", "Config.Mode.Claim.Owner is 129 characters",
		"Config.Purge.Retention is -2ns", "Config.Purge.BatchSize is -1", "Config.Purge.Interval is -1ns", "Config.Purge.OnDone",
		"Config.Interceptors[0] is nil", "Config.RetryPolicy is a nil",
	} {
		require.ErrorContains(t, err, field)
	}
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
}

// A queue takes its memory at once, so that a slip would end the process.
func TestNewRefusesNumbersThatTakeTheMemory(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{Workers: 10_000 + 1, HotCapacity: 2_000_000_000, ColdCapacity: 1_000_000 + 1},
			Poll:     outbox.PollOptions{BatchSize: outbox.MaxBatch + 1},
		},
		Purge: &outbox.PurgeOptions{BatchSize: 1e9},
	})
	for _, want := range []string{
		"Config.Mode.Dispatch.Workers is 10001; the limit is 10000",
		"Config.Mode.Dispatch.HotCapacity is 2000000000; the limit is 1000000",
		"Config.Mode.Dispatch.ColdCapacity is 1000001; the limit is 1000000",
		"Config.Mode.Poll.BatchSize is 100001; the limit is 100000",
		"Config.Purge.BatchSize is 1000000000; the limit is 100000",
	} {
		require.ErrorContains(t, err, want)
	}
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Logger: quiet,
		Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{Workers: 10_000, HotCapacity: 1_000_000, ColdCapacity: 1_000_000},
			Poll:     outbox.PollOptions{BatchSize: outbox.MaxBatch},
		},
	})
	require.NoError(t, err)
	require.NoError(t, ob.Close(t.Context()))
}

type foreignMode struct{ outbox.Mode }

func TestNewRefusesAModeThatIsNotOne(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: foreignMode{}})
	require.ErrorContains(t, err, "Config.Mode is a outbox_test.foreignMode")
}

func TestDeadLettersReportWhatTheyMiss(t *testing.T) {
	t.Parallel()
	_, err := outbox.NewDeadLetters(nil, nil)
	require.ErrorContains(t, err, "DeadLetters.DB")
}

// uncomparable is a pool that cannot be told from another one.
type uncomparable struct {
	outbox.DB
	_ []int
}

func TestAPoolIsComparable(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{DB: uncomparable{DB: store.DB()}, Store: store})
	require.EqualError(t, err, "outbox: Config.DB is a outbox_test.uncomparable, which cannot be compared; give a pointer")
}

func TestOnUnroutableIsOneOfItsValues(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	for name, mode := range map[string]outbox.Mode{
		"Mode.Dispatch": outbox.SingleNode{Dispatch: outbox.DispatchOptions{OnUnroutable: 3}},
		"Mode":          outbox.Ordered{OnUnroutable: 3},
	} {
		_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: mode})
		require.EqualError(t, err, "outbox: Config."+name+".OnUnroutable is not one of outbox.LeaveUnroutable and outbox.KillUnroutable")
	}
}

func TestPollerOnlyHasNoHotQueue(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{PollerOnly: true, HotCapacity: 10},
	}})
	require.ErrorContains(t, err, "Config.Mode.Dispatch.HotCapacity is 10, but a poller-only dispatcher has no hot queue; leave one of the two settings out")
}
