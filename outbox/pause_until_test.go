package outbox_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// rareModes are the modes that deliver, with pollers that look once an hour unless they have a reason.
// In Ordered a commit is no reason.
var rareModes = map[string]outbox.Mode{
	"single":  outbox.SingleNode{Poll: rarely},
	"multi":   outbox.MultiNode{Poll: rarely},
	"tenants": outbox.MultiNode{Poll: rarely, Claim: outbox.ClaimOptions{TenantsInTurn: true}},
	"limited": outbox.MultiNode{Poll: rarely, Dispatch: outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{kindSaid: {Concurrency: 2}}}},
	"by key":  outbox.OrderedByKey{Poll: rarely},
	"ordered": outbox.Ordered{Poll: outbox.PollOptions{Interval: 7 * time.Second}},
}

var rarely = outbox.PollOptions{Interval: time.Hour}

// sealed is a store to which no pause is written after it is closed.
type sealed struct {
	*outboxtest.Store
	closed bool
}

func (s *sealed) memory() *outboxtest.Store { return s.Store }

func (s *sealed) Resume(ctx context.Context, db outbox.DB, kind outbox.EventKind, aggregateID string) error {
	if s.closed {
		panic("a pause that ends needs no write")
	}
	return s.Store.Resume(ctx, db, kind, aggregateID)
}

// The end of a pause needs neither an operator nor the poll interval.
func TestAPauseEndsByItself(t *testing.T) {
	t.Parallel()
	for name, mode := range rareModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &sealed{Store: outboxtest.NewStore()}
				var got arrivals
				e := start(t, outbox.Config{Store: store, Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
					got.add(env.EventID)
					return nil
				})
				until := time.Now().Add(90 * time.Second)
				require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid, Until: until, Reason: "provider down, ticket 4711", By: "ann"}))
				store.closed = true
				ids := several(e, 10, "a", "Said")
				pass(89 * time.Second)
				require.Empty(t, got.all())
				list, err := e.Paused(t.Context())
				require.NoError(t, err)
				require.Equal(t, []outbox.Pause{{
					Kind: outbox.EventKind{AggregateType: outbox.Global, EventType: "Said"}, Until: until.UTC(), Reason: "provider down, ticket 4711", By: "ann", Since: until.Add(-90 * time.Second).UTC(),
				}}, list)
				pass(time.Second + 10*time.Millisecond)
				require.ElementsMatch(t, ids, got.all())
				list, err = e.Paused(t.Context())
				require.NoError(t, err)
				require.Empty(t, list)
			})
		})
	}
}

// ahead is a store whose database has a clock that is ten minutes ahead.
type ahead struct{ *outboxtest.Store }

const aheadBy = 10 * time.Minute

func (s ahead) memory() *outboxtest.Store { return s.Store }

func (s ahead) Now(ctx context.Context, db outbox.DB) (time.Time, error) {
	now, err := s.Store.Now(ctx, db)
	return now.Add(aheadBy), err
}

func (s ahead) Pause(ctx context.Context, db outbox.DB, pause outbox.Pause) error {
	pause.Until = pause.Until.Add(-aheadBy)
	return s.Store.Pause(ctx, db, pause)
}

func (s ahead) Paused(ctx context.Context, db outbox.DB) ([]outbox.Pause, error) {
	list, err := s.Store.Paused(ctx, db)
	for i := range list {
		list[i].Until = list[i].Until.Add(aheadBy)
	}
	return list, err
}

func TestAPauseEndsByTheClockOfTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got arrivals
		e := start(t, outbox.Config{Store: ahead{outboxtest.NewStore()}, Mode: rareModes["multi"]}, func(_ context.Context, env outbox.Envelope) error {
			got.add(env.EventID)
			return nil
		})
		require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid, Until: time.Now().Add(aheadBy + time.Minute)}))
		e.write(said("a"))
		pass(59 * time.Second)
		require.Empty(t, got.all())
		pass(time.Second + 10*time.Millisecond)
		require.Equal(t, []string{"a"}, got.all())
		require.ErrorContains(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid, Until: time.Now().Add(aheadBy - time.Minute)}),
			"Pause.Until is over: the database's clock is 1m0s ahead of it")
	})
}

// The last call of an operator decides, also when it makes the pause shorter.
func TestAnOperatorReplacesAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got arrivals
		e := start(t, outbox.Config{Mode: rareModes["single"]}, func(_ context.Context, env outbox.Envelope) error {
			got.add(env.EventID)
			return nil
		})
		in := func(d time.Duration) outbox.Pause { return outbox.Pause{Kind: kindSaid, Until: time.Now().Add(d)} }
		require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
		require.NoError(t, e.Pause(t.Context(), in(time.Hour)))
		require.NoError(t, e.Pause(t.Context(), in(time.Minute)))
		e.write(said("a"))
		pass(time.Minute + 10*time.Millisecond)
		require.Equal(t, []string{"a"}, got.all())

		require.NoError(t, e.Pause(t.Context(), in(time.Minute)))
		pass(30 * time.Second)
		require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
		e.write(said("b"))
		pass(24 * time.Hour)
		require.Equal(t, []string{"a"}, got.all(), "a pause without an end has none")
		require.NoError(t, e.Resume(t.Context(), kindSaid))
		pass(10 * time.Millisecond)
		require.Equal(t, []string{"a", "b"}, got.all())
	})
}

func TestAPauseThatCannotBeStoredIsNamed(t *testing.T) {
	t.Parallel()
	e := build(t, outbox.Config{}, nil)
	for problem, pause := range map[string]outbox.Pause{
		"Pause.Kind.EventType is required":                                           {},
		"Pause.Kind.EventType is 129 characters long; the limit is 128":              {Kind: outbox.EventKind{EventType: outbox.EventType(strings.Repeat("ü", 129))}},
		"Pause.Reason is 501 characters long; the limit is 500":                      {Kind: kindSaid, Reason: strings.Repeat("ü", 501)},
		"Pause.Reason holds the control character U+000A at byte 1":                  {Kind: kindSaid, Reason: "a\nb"},
		"Pause.Reason is not valid UTF-8":                                            {Kind: kindSaid, Reason: "\xff"},
		"Pause.By is 257 characters long; the limit is 256":                          {Kind: kindSaid, By: strings.Repeat("a", 257)},
		"Pause.By holds the control character U+001B at byte 0; write a single line": {Kind: kindSaid, By: "\x1b[2J"},
		"Pause.By holds a NUL":                                                       {Kind: kindSaid, By: "a\x00"},
		"Pause.Until leads to the year 10000":                                        {Kind: kindSaid, Until: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"Pause.Until is over":                                                        {Kind: kindSaid, Until: time.Now().Add(-time.Hour)},
	} {
		err := e.Pause(t.Context(), pause)
		require.ErrorContains(t, err, problem)
		var field *outbox.FieldError
		require.ErrorAs(t, err, &field)
	}
	list, err := e.Paused(t.Context())
	require.NoError(t, err)
	require.Empty(t, list, "nothing is half stored")
	longest := outbox.Pause{Kind: kindSaid, Reason: strings.Repeat("ü", 500), By: strings.Repeat("ü", 256)}
	require.NoError(t, e.Pause(t.Context(), longest))
}
