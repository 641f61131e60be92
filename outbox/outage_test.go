package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// outage is a store whose database is away for a time that is longer than a
// lease. When it is back it takes a minute more until more than claims get through.
type outage struct {
	*outboxtest.Store
	hangs bool // calls get no answer; otherwise they fail at once

	mu   sync.Mutex
	from time.Time // zero: not yet
}

const outageLasts = 2 * outbox.DefaultLeaseDuration

func (s *outage) memory() *outboxtest.Store { return s.Store }

func (s *outage) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from = time.Now()
}

func (s *outage) meet(ctx context.Context, lasts time.Duration) error {
	s.mu.Lock()
	present := !s.from.IsZero() && time.Since(s.from) < lasts
	s.mu.Unlock()
	switch {
	case !present:
		return nil
	case s.hangs:
		<-ctx.Done()
		return ctx.Err()
	default:
		return errors.New("connection refused")
	}
}

func (s *outage) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if err := s.meet(ctx, outageLasts); err != nil {
		return outbox.Batch{}, err
	}
	return s.Store.Claim(ctx, db, q)
}

func (s *outage) Renew(ctx context.Context, db outbox.DB, leases []outbox.Lease) error {
	if err := s.meet(ctx, outageLasts+time.Minute); err != nil {
		return err
	}
	return s.Store.Renew(ctx, db, leases)
}

func (s *outage) Leased(ctx context.Context, db outbox.DB, names []string) ([]outbox.Lease, error) {
	if err := s.meet(ctx, outageLasts+time.Minute); err != nil {
		return nil, err
	}
	return s.Store.Leased(ctx, db, names)
}

func (s *outage) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if err := s.meet(ctx, outageLasts+time.Minute); err != nil {
		return nil, err
	}
	return s.Store.Mark(ctx, db, kind, marks)
}

// The lease of an event ended while its outcome could not be stored. This node
// claims the row itself when the database is back: it knows the outcome, and
// stores it instead of delivering again.
func TestAnOutcomeInHandIsNotDeliveredAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		id     string
		hangs  bool
		status outbox.Status
	}{
		"done, without answers": {"done", true, outbox.StatusDone},
		"done, with errors":     {"done", false, outbox.StatusDone},
		"to be tried later":     {"fail", false, outbox.StatusRetry},
		"put off":               {"wait", false, outbox.StatusNew},
		"dead":                  {"dead", false, outbox.StatusDead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &outage{Store: outboxtest.NewStore(), hangs: tt.hangs}
				var calls atomic.Int64
				e := start(t, outbox.Config{
					Store: store, Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{Owner: "me"}},
					RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return time.Hour }),
				}, func(_ context.Context, env outbox.Envelope) error {
					if calls.Add(1) == 1 {
						store.begin()
					}
					return answer(env.EventID)
				})
				e.write(said(tt.id))
				time.Sleep(outageLasts + 40*time.Second)
				row, _ := store.Row(tt.id)
				require.Regexp(t, `^me/`, row.LockedBy)
				require.Equal(t, 1, row.Attempts, "the row was claimed again")
				time.Sleep(2 * time.Minute)
				row, _ = store.Row(tt.id)
				require.Equal(t, tt.status, row.Status)
				require.Empty(t, row.LockedBy, "the outcome is stored")
				require.EqualValues(t, 1, calls.Load())
			})
		})
	}
}

// The row may be claimed at any moment of the tries to store its outcome, of which
// each hangs for a while.
func TestAnOutcomeInHandIsNotDeliveredAgainWheneverItsRowIsClaimed(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"done", "fail", "wait", "dead"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			for phase := range 40 {
				synctest.Test(t, func(t *testing.T) {
					store := &outage{Store: outboxtest.NewStore(), hangs: true}
					var calls atomic.Int64
					e := start(t, outbox.Config{
						Store: store, Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{Owner: "me"}},
						RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return time.Hour }),
					}, func(_ context.Context, env outbox.Envelope) error {
						if calls.Add(1) == 1 {
							time.Sleep(time.Duration(phase) * 370 * time.Millisecond)
							store.begin()
						}
						return answer(env.EventID)
					})
					e.write(said(id))
					time.Sleep(outageLasts + 5*time.Minute)
					require.EqualValues(t, 1, calls.Load(), "phase %d", phase)
					row, _ := store.Row(id)
					require.Empty(t, row.LockedBy, "the outcome is stored")
				})
			}
		})
	}
}

// gone is a store whose statements fail at once, or get no answer, until the
// database is back.
type gone struct {
	*outboxtest.Store
	back   atomic.Bool
	silent bool
}

func (s *gone) memory() *outboxtest.Store { return s.Store }

func (s *gone) answer(ctx context.Context) error {
	switch {
	case s.back.Load():
		return nil
	case s.silent:
		<-ctx.Done()
		return ctx.Err()
	default:
		return errors.New("connection refused")
	}
}

func (s *gone) Now(ctx context.Context, db outbox.DB) (time.Time, error) {
	if err := s.answer(ctx); err != nil {
		return time.Time{}, err
	}
	return s.Store.Now(ctx, db)
}

func (s *gone) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	return s.Store.Mark(ctx, db, outcome, marks)
}

// Outcomes are stored soon after the database is back, however long it was away.
func TestOutcomesAreStoredWithinASecondOfTheDatabasesReturn(t *testing.T) {
	t.Parallel()
	for _, away := range []time.Duration{time.Second, 5 * time.Second, time.Minute, 30 * time.Minute} {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprint(away, ", silent: ", silent), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := &gone{Store: outboxtest.NewStore(), silent: silent}
					e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{HotCapacity: 5000}}}, handled)
					for _, id := range named("e", 3000) {
						e.write(said(id))
					}
					time.Sleep(away)
					store.back.Store(true)
					if silent && away < 3*time.Second {
						time.Sleep(2 * time.Second) // the first statement has its time
					}
					time.Sleep(time.Second)
					require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 3000}, statuses(store.Store))
					require.NoError(t, e.Close(t.Context()))
				})
			})
		}
	}
}
