package outbox_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// rulesFor is an outbox whose listener of "Said" has rules.
func rulesFor(t *testing.T, cfg outbox.Config, rules outbox.Rules, fn func(ctx context.Context, env outbox.Envelope) error) *engine {
	t.Helper()
	e := build(t, cfg, nil)
	require.NoError(t, e.Register(outbox.On("", "Said", outbox.ListenerFunc(fn), rules)))
	require.NoError(t, e.Start(t.Context()))
	return e
}

func fails(context.Context, outbox.Envelope) error { return errDown }

// deliveries counts the calls of a listener of one event.
func deliveries(calls *atomic.Int64, answer error) func(context.Context, outbox.Envelope) error {
	return func(context.Context, outbox.Envelope) error {
		calls.Add(1)
		return answer
	}
}

func everySecond(int) time.Duration { return time.Second }

// The operator's rules count before the listener's, field by field, and these before the outbox's.
func TestRulesCountFieldByField(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		listener, operator outbox.Rules
		calls              int
		after              time.Duration
	}{
		"of the outbox":                       {calls: 2, after: time.Minute},
		"of the listener":                     {listener: outbox.Rules{MaxAttempts: 3}, calls: 3, after: 2 * time.Minute},
		"of the operator":                     {listener: outbox.Rules{MaxAttempts: 3}, operator: outbox.Rules{MaxAttempts: 4}, calls: 4, after: 3 * time.Minute},
		"one field of each":                   {listener: outbox.Rules{MaxAttempts: 3, RetryPolicy: outbox.RetryPolicyFunc(everySecond)}, operator: outbox.Rules{MaxAttempts: 4}, calls: 4, after: 3 * time.Second},
		"of the operator, about other fields": {listener: outbox.Rules{MaxAttempts: 3}, operator: outbox.Rules{Concurrency: 1}, calls: 3, after: 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				e := rulesFor(t, outbox.Config{
					RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return time.Minute }),
					Mode:        outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 2, Rules: map[outbox.EventKind]outbox.Rules{kindSaid: c.operator}}},
				}, c.listener, deliveries(&calls, errDown))
				e.write(said("e"))
				pass(c.after - time.Millisecond)
				require.EqualValues(t, c.calls-1, calls.Load())
				pass(time.Second)
				require.EqualValues(t, c.calls, calls.Load())
				row, _ := e.store.Row("e")
				require.Equal(t, outbox.StatusDead, row.Status)
				require.Equal(t, c.calls, row.Attempts)
			})
		})
	}
}

// The attempts of an endless kind stop where the column does, and the policy gets that number.
func TestAnEndlessKindIsRetriedWhateverItsAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		store := outboxtest.NewStore()
		insertDue(t, store, "e", -time.Hour)
		row, _ := store.Row("e")
		row.Attempts = math.MaxInt32 - 2
		store.SetRow("e", row.RawRow)
		e := rulesFor(t, outbox.Config{Store: store}, outbox.Rules{MaxAttempts: outbox.Endless, RetryPolicy: outbox.ExponentialBackoff(time.Second, time.Hour)}, deliveries(&calls, errDown))
		pass(5 * time.Hour)
		require.Greater(t, calls.Load(), int64(4))
		row, _ = e.store.Row("e")
		require.Equal(t, outbox.StatusRetry, row.Status)
		require.Equal(t, math.MaxInt32-1, row.Attempts)
		require.LessOrEqual(t, time.Until(row.AvailableAt), time.Hour)
	})
}

// Each of several listeners has attempts, delays and a timeout of its own, also in the delivery to
// all of them.
func TestEachListenerHasItsOwnRules(t *testing.T) {
	t.Parallel()
	inModes(t, outbox.DispatchOptions{MaxAttempts: 2, ListenerTimeout: time.Minute}, func(t *testing.T, mode outbox.Mode) {
		var h hearing
		took := map[string]time.Duration{}
		hangs := func(name string) func(context.Context, int) error {
			return func(ctx context.Context, _ int) error {
				began := time.Now()
				<-ctx.Done()
				took[name] = time.Since(began)
				return ctx.Err()
			}
		}
		with := func(b outbox.Binding, r outbox.Rules) outbox.Binding {
			b.Rules = r
			return b
		}
		e := startNamed(t, outbox.Config{Mode: mode},
			with(h.on("a", hangs("a")), outbox.Rules{MaxAttempts: 1, ListenerTimeout: time.Second}),
			with(h.on("b", failsTimes(3)), outbox.Rules{MaxAttempts: outbox.Endless, RetryPolicy: outbox.RetryPolicyFunc(everySecond)}),
			with(h.on("c", hangs("c")), outbox.Rules{MaxAttempts: 1}),
			with(h.on("d", succeeds), outbox.Rules{}))
		e.write(said("e"))
		pass(time.Hour)
		require.NoError(t, e.Close(context.Background()))
		require.Equal(t, []string{"a e/0", "b e/0", "c e/0", "d e/0", "b e/1", "b e/2", "b e/3"}, h.all())
		require.Equal(t, map[string]time.Duration{"a": time.Second, "c": time.Minute}, took)
		rows := rowsBy(e.store)
		require.Equal(t, outbox.StatusDead, rows["a"].Status)
		require.Equal(t, outbox.StatusDone, rows["b"].Status)
		require.Equal(t, outbox.StatusDead, rows["c"].Status)
	})
}

// An interceptor that refuses the event decides for all listeners: the event has as many attempts as
// the listener with the most.
func TestAnEventThatNoListenerGotHasTheMostAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		e := build(t, outbox.Config{
			RetryPolicy:  outbox.RetryPolicyFunc(everySecond),
			Interceptors: []outbox.Interceptor{outbox.Before(deliveries(&calls, errDown))},
		}, nil)
		for name, n := range map[string]int{"a": 1, "b": 4, "c": 2} {
			require.NoError(t, e.Register(outbox.On("", "Said", outbox.ListenerFunc(handled), outbox.Named(name), outbox.Rules{MaxAttempts: n})))
		}
		require.NoError(t, e.Start(t.Context()))
		e.write(said("e"))
		pass(time.Minute)
		require.EqualValues(t, 4, calls.Load())
		require.Equal(t, map[outbox.Status]int{outbox.StatusDead: 1}, statuses(e.store))
	})
}

func TestAListenerMayHaveNoTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var deadline bool
		e := rulesFor(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{ListenerTimeout: time.Second}}}, outbox.Rules{ListenerTimeout: outbox.NoTimeout},
			func(ctx context.Context, _ outbox.Envelope) error {
				_, deadline = ctx.Deadline()
				time.Sleep(time.Minute)
				return ctx.Err()
			})
		e.write(said("e"))
		pass(2 * time.Minute)
		require.NoError(t, e.Close(context.Background()))
		require.False(t, deadline)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 1}, statuses(e.store))
	})
}

// A call has the shortest timeout of its events' kinds.
func TestABatchHasTheShortestTimeoutOfItsEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var left []time.Duration
		batch := outbox.BatchListener(outbox.BatchOptions{Size: 2, Wait: time.Second}, func(ctx context.Context, _ []outbox.Envelope) ([]error, error) {
			deadline, _ := ctx.Deadline()
			left = append(left, time.Until(deadline))
			return nil, nil
		})
		e := build(t, outbox.Config{}, nil)
		require.NoError(t, e.Register(
			outbox.On("", "Said", batch, outbox.Rules{ListenerTimeout: time.Minute}),
			outbox.On("", "Asked", batch, outbox.Rules{ListenerTimeout: time.Second}),
			outbox.On("", "Sung", batch)))
		require.NoError(t, e.Start(t.Context()))
		for _, events := range [][]outbox.EventType{{"Said", "Asked"}, {"Said", "Sung"}, {"Asked"}} {
			for _, event := range events {
				e.write(outbox.Envelope{EventType: event, Payload: outbox.JSON(1)})
			}
			pass(time.Minute)
		}
		require.NoError(t, e.Close(context.Background()))
		require.Equal(t, []time.Duration{time.Second, time.Minute, time.Second}, left)
	})
}

// The event that fails alone on its last attempt is found by the rules of its kind.
func TestAnEventIsAloneInItsBatchOnItsLastAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		topic := outbox.NewTopic[string]("", "Said")
		e := build(t, outbox.Config{RetryPolicy: outbox.RetryPolicyFunc(everySecond)}, nil)
		require.NoError(t, e.Register(topic.ListenBatch(outbox.BatchOptions{Size: 2, Wait: time.Millisecond}, func(_ context.Context, batch []outbox.Event[string]) ([]error, error) {
			sizes = append(sizes, len(batch))
			return nil, errDown
		}, outbox.Rules{MaxAttempts: 2})))
		require.NoError(t, e.Start(t.Context()))
		e.write(saidAll("e1", "e2")...)
		pass(time.Minute)
		require.NoError(t, e.Close(context.Background()))
		require.Equal(t, []int{2, 1, 1}, sizes)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDead: 2}, statuses(e.store))
	})
}

// A kind may delete its rows where the outbox keeps rows, and the other way round. The own row of an
// event of which some listeners are not done follows the rule too.
func TestOnDoneIsTheKinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outbox, kind outbox.OnDone
		kept         bool
	}{
		"keep":   {outbox: outbox.Delete, kind: outbox.Keep, kept: true},
		"delete": {outbox: outbox.Keep, kind: outbox.Delete},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := build(t, outbox.Config{Purge: &outbox.PurgeOptions{OnDone: c.outbox}}, handled)
				require.NoError(t, e.Register(
					outbox.On("", "Kind", outbox.ListenerFunc(handled), outbox.Rules{OnDone: c.kind}),
					outbox.On("", "Split", outbox.ListenerFunc(handled), outbox.Named("a"), outbox.Rules{OnDone: c.kind}),
					outbox.On("", "Split", outbox.ListenerFunc(fails), outbox.Named("b"), outbox.Rules{MaxAttempts: outbox.Endless}),
					outbox.On("", "Torn", outbox.ListenerFunc(handled), outbox.Named("a")),
					outbox.On("", "Torn", outbox.ListenerFunc(fails), outbox.Named("b"), outbox.Rules{MaxAttempts: outbox.Endless}),
				))
				require.NoError(t, e.Start(t.Context()))
				e.write(said("said"))
				for id, event := range map[string]outbox.EventType{"kind": "Kind", "split": "Split", "torn": "Torn"} {
					e.write(outbox.Envelope{EventID: id, EventType: event, Payload: outbox.JSON(id)})
				}
				pass(time.Minute)
				for id, kept := range map[string]bool{"kind": c.kept, "split": c.kept, "said": !c.kept, "torn": !c.kept} {
					row, found := e.store.Row(id)
					require.Equal(t, kept, found, id)
					require.True(t, !found || row.Status == outbox.StatusDone, id)
				}
				require.Equal(t, 2, statuses(e.store)[outbox.StatusRetry])
			})
		})
	}
}

func TestRulesOfOneKindMustAgree(t *testing.T) {
	t.Parallel()
	r := outbox.NewRegistry()
	on := func(name string, rules outbox.Rules) outbox.Binding {
		return outbox.On("order", "Paid", outbox.ListenerFunc(handled), outbox.Named(name), rules)
	}
	require.NoError(t, r.Register(
		on("mail", outbox.Rules{Rate: 5, MaxAttempts: 3, RetryPolicy: outbox.RetryPolicyFunc(everySecond)}),
		on("search", outbox.Rules{Rate: 5, MaxAttempts: 4, RetryPolicy: outbox.RetryPolicyFunc(everySecond), Expires: time.Hour}),
	), "the rate is the same, and attempts are each listener's own")
	for field, rules := range map[string]outbox.Rules{
		"Rate is 6, but Binding[order/Paid mail].Rules.Rate is 5":                 {Rate: 6},
		"Expires is 1m0s, but Binding[order/Paid search].Rules.Expires is 1h0m0s": {Expires: time.Minute},
	} {
		require.ErrorContains(t, r.Register(on("audit", rules)), "outbox: Binding[order/Paid audit].Rules."+field)
	}
	require.Equal(t, 2, r.Len(), "nothing was registered")
	require.NoError(t, r.Register(on("audit", outbox.Rules{Concurrency: 2})))
}

func TestRulesThatAreWrongAreNamed(t *testing.T) {
	t.Parallel()
	err := outbox.NewRegistry().Register(outbox.On("order", "Paid", outbox.ListenerFunc(handled), outbox.Rules{
		MaxAttempts: -2, RetryPolicy: outbox.RetryPolicyFunc(nil), ListenerTimeout: 5, Expires: -time.Second, OnDone: 7, Retention: -2, Concurrency: 1 << 20, Rate: math.NaN(), Burst: -1,
		MaxDueAge: 5 * time.Millisecond,
	}))
	for _, want := range []string{
		"MaxAttempts is -2; it must be positive, or outbox.Endless",
		"RetryPolicy is a nil outbox.RetryPolicyFunc; leave it out for the default",
		"ListenerTimeout is 5ns, less than a millisecond; did you mean 5s?",
		"Expires is -1s; it must not be negative",
		"OnDone is not one of outbox.Keep and outbox.Delete",
		"Retention is -2ns; it must not be negative",
		"MaxDueAge is 5ms; it must be at least 1s, or zero for no limit of the kind's own",
		"Concurrency is 1048576; the limit is 10000",
		"Rate is NaN deliveries a second",
		"Burst is -1; it must not be negative",
	} {
		require.ErrorContains(t, err, "outbox: Binding[order/Paid].Rules."+want)
	}
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	store := outboxtest.NewStore()
	_, err = outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{
		MaxAttempts: outbox.Endless, Rules: map[outbox.EventKind]outbox.Rules{{EventType: "Said"}: {}, {AggregateType: outbox.Global, EventType: "Said"}: {}, {EventType: "Sung", Listener: "a"}: {}},
	}}})
	require.ErrorContains(t, err, "Config.Mode.Dispatch.Rules[__GLOBAL__/Said].AggregateType is empty in one key and __GLOBAL__ in another")
	require.ErrorContains(t, err, `Config.Mode.Dispatch.Rules[__GLOBAL__/Sung].Listener is "a"; leave it empty`)
	require.NotContains(t, err.Error(), "MaxAttempts")
}

// A mode, a listener or an outbox that cannot follow a rule refuses the rule, and names it.
func TestRulesThatCannotApplyAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	batch := outbox.BatchListener(outbox.BatchOptions{Size: 2}, func(context.Context, []outbox.Envelope) ([]error, error) { return nil, nil })
	for name, c := range map[string]struct {
		mode     outbox.Mode
		listener outbox.Listener
		rules    outbox.Rules
		want     []string
	}{
		"ordered": {mode: outbox.Ordered{}, rules: outbox.Rules{MaxAttempts: 3, RetryPolicy: outbox.ExponentialBackoff(0, 0), Concurrency: 1, Rate: 1, Expires: time.Hour, ListenerTimeout: time.Hour, OnDone: outbox.Delete}, want: []string{
			"MaxAttempts is 3, but Ordered has one worker and one attempt", "RetryPolicy is set, but Ordered", "Concurrency is 1, but Ordered", "Rate is 1, but Ordered",
		}},
		"by key": {mode: outbox.OrderedByKey{}, rules: outbox.Rules{MaxAttempts: 3, Concurrency: 1, Rate: 1, Burst: 1}, want: []string{
			"Concurrency is 1, but in OrderedByKey a worker delivers the events of a key", "Rate is 1, but in OrderedByKey", "Burst is 1, but in OrderedByKey",
		}},
		"batches":            {listener: batch, rules: outbox.Rules{MaxAttempts: 3, Concurrency: 1}, want: []string{"Concurrency is 1, but the listener gets batches"}},
		"no purge":           {rules: outbox.Rules{Retention: time.Hour}, want: []string{"Retention is 1h0m0s, but Config.Purge is nil"}},
		"burst without rate": {rules: outbox.Rules{Burst: 2}, want: []string{"Burst is 2 without a rate"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := build(t, outbox.Config{Mode: c.mode, Store: outboxtest.NewStore()}, nil)
			if c.listener == nil {
				c.listener = outbox.ListenerFunc(handled)
			}
			require.NoError(t, e.Register(outbox.On("order", "Paid", c.listener, c.rules, outbox.Named("mail"))))
			if name == "batches" { // a batch listener with a name gets events one by one
				e = build(t, outbox.Config{Mode: c.mode}, nil)
				require.NoError(t, e.Register(outbox.On("order", "Paid", c.listener, c.rules)))
			}
			err := e.Start(t.Context())
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			var errs interface{ Unwrap() []error }
			if errors.As(err, &errs) {
				require.Len(t, errs.Unwrap(), len(c.want))
			}
		})
	}
}

// An outbox reads the rules at Start, so rules that come later are refused, also by a registry that
// another outbox started with. Listeners without rules may come.
func TestRulesAfterAStartAreRefused(t *testing.T) {
	t.Parallel()
	r := outbox.NewRegistry()
	require.NoError(t, r.Register(outbox.On("", "Said", outbox.ListenerFunc(handled))))
	start(t, outbox.Config{Registry: r}, nil)
	require.ErrorIs(t, r.Register(outbox.On("", "Late", outbox.ListenerFunc(handled), outbox.Rules{MaxAttempts: 1})), outbox.ErrStarted)
	require.NoError(t, r.Register(outbox.On("", "Late", outbox.ListenerFunc(handled))))
}

// Deliver, which stands for Start in tests, follows the rules too.
func TestDeliverFollowsTheRules(t *testing.T) {
	t.Parallel()
	e := build(t, outbox.Config{}, nil)
	require.NoError(t, e.Register(outbox.On("", "Said", outbox.ListenerFunc(fails), outbox.Rules{MaxAttempts: 1})))
	e.write(said("e"))
	row, _ := e.store.Row("e")
	result, err := e.Deliver(t.Context(), row.Envelope)
	require.NoError(t, err)
	require.Equal(t, outbox.StatusDead, result.Status)
}
