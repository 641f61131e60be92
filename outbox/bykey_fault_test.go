package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// cutOff is a node's connection to its store that is down for a while: its outcomes
// wait, and its leases are not renewed.
type cutOff struct {
	*outboxtest.Store
	down    atomic.Bool
	slow    atomic.Bool // the answer to a renewal takes 45 seconds
	claims  atomic.Int64
	refuse  atomic.Pointer[func(marks []outbox.Mark) bool] // whose outcomes are not stored
	forgets atomic.Int64                                   // claims that are carried out without an answer
}

func (s *cutOff) memory() *outboxtest.Store { return s.Store }

var errCut = errors.New("the connection is down")

func (s *cutOff) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	s.claims.Add(1)
	if s.down.Load() {
		return outbox.Batch{}, errCut
	}
	b, err := s.Store.Claim(ctx, db, q)
	if s.forgets.Add(-1) >= 0 {
		return outbox.Batch{}, errCut
	}
	return b, err
}

func (s *cutOff) Renew(ctx context.Context, db outbox.DB, leases []outbox.Lease) error {
	if s.down.Load() {
		return errCut
	}
	if s.slow.Load() {
		defer time.Sleep(45 * time.Second)
	}
	return s.Store.Renew(ctx, db, leases)
}

func (s *cutOff) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if refuse := s.refuse.Load(); s.down.Load() || refuse != nil && (*refuse)(marks) {
		return nil, errCut
	}
	return s.Store.Mark(ctx, db, kind, marks)
}

const minute = time.Minute

// keyNode is a node on a store.
func keyNode(t *testing.T, store *cutOff, mode outbox.OrderedByKey, fn func(env outbox.Envelope) error) (*engine, *diary) {
	t.Helper()
	var d diary
	mode.Claim.LeaseDuration = minute
	return start(t, outbox.Config{Store: store, Mode: mode}, d.listen(fn)), &d
}

// A node whose leases are over, by its own clock, lets go of the rest of its runs,
// those in its queue included.
func TestARunEndsWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &cutOff{Store: outboxtest.NewStore()}
		_, d := keyNode(t, store, outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: 1}}, func(env outbox.Envelope) error {
			if env.EventID == "a-00001" {
				store.down.Store(true)
				time.Sleep(2 * minute)
			}
			return nil
		})
		writer := build(t, outbox.Config{Store: store.Store, Mode: outbox.WriterOnly{}}, nil)
		writer.write(slices.Concat(numbered("a", 4), numbered("b", 4))...)
		time.Sleep(5 * minute)
		require.Equal(t, idsOf(numbered("a", 2)), d.of("a"))
		require.Empty(t, d.of("b"))
		store.down.Store(false)
		time.Sleep(minute)
		require.Equal(t, idsOf(numbered("a", 4)), d.of("a")[len(d.of("a"))-4+0:])
		require.Equal(t, idsOf(numbered("b", 4)), d.of("b"))
	})
}

// The same goes for the listeners of one event: another process may have delivered the event
// to all of them, and may be with the next event of the key.
func TestNoFurtherListenerBeginsWhenTheLeaseIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &cutOff{Store: outboxtest.NewStore()}
		var mail, search diary
		done := func(outbox.Envelope) error { return nil }
		startNamed(t, outbox.Config{Store: store, Mode: outbox.OrderedByKey{Claim: outbox.ClaimOptions{LeaseDuration: minute}}},
			outbox.On("", "Said", outbox.ListenerFunc(mail.listen(func(env outbox.Envelope) error {
				if env.EventID == "a-00001" && len(mail.of("a")) == 2 {
					store.down.Store(true)
					time.Sleep(2 * minute)
				}
				return nil
			})), outbox.Named("mail")),
			outbox.On("", "Said", outbox.ListenerFunc(search.listen(done)), outbox.Named("search")))
		writer := build(t, outbox.Config{Store: store.Store, Mode: outbox.WriterOnly{}}, nil)
		writer.write(numbered("a", 3)...)
		time.Sleep(5 * minute)
		require.Equal(t, idsOf(numbered("a", 2)), mail.of("a"))
		require.Equal(t, idsOf(numbered("a", 1)), search.of("a"))
		store.down.Store(false)
		time.Sleep(5 * minute)
		require.Equal(t, "a-00002", mail.of("a")[len(mail.of("a"))-1])
		require.Equal(t, idsOf(numbered("a", 3)), search.of("a"))
	})
}

// A lease that is renewed in time lasts longer than the lease duration.
func TestARunOutlivesTheLeaseDuration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &cutOff{Store: outboxtest.NewStore()}
		e, d := keyNode(t, store, outbox.OrderedByKey{}, func(outbox.Envelope) error {
			time.Sleep(minute - time.Second)
			return nil
		})
		e.write(numbered("a", 5)...)
		time.Sleep(5 * minute)
		require.Equal(t, idsOf(numbered("a", 5)), d.of("a"))
		require.EqualValues(t, 1, store.claims.Load())
	})
}

// A renewal does not count whose answer came when the lease was over: another node may
// have had the events meanwhile.
func TestARenewalThatComesTooLateDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &cutOff{Store: outboxtest.NewStore()}
		store.slow.Store(true)
		e, d := keyNode(t, store, outbox.OrderedByKey{}, func(outbox.Envelope) error {
			if store.slow.Load() {
				time.Sleep(minute + 10*time.Second)
			}
			store.slow.Store(false)
			return nil
		})
		e.write(numbered("a", 3)...)
		time.Sleep(2 * minute)
		require.Equal(t, idsOf(numbered("a", 3)), d.of("a"))
		require.EqualValues(t, 2, store.claims.Load())
	})
}

// A node has delivered two events when its leases expire, and another one takes over
// the first. What the first node stores then of the second event is refused: it comes
// again, behind the first.
func TestATakeoverFencesWhatIsBehindIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		paused := &cutOff{Store: store}
		all := make(chan string, 100)
		e, _ := keyNode(t, paused, outbox.OrderedByKey{}, func(env outbox.Envelope) error {
			all <- "paused " + env.EventID
			paused.down.Store(true)
			return nil
		})
		e.write(numbered("a", 2)...)
		time.Sleep(2 * minute)
		keyNode(t, &cutOff{Store: store}, outbox.OrderedByKey{}, func(env outbox.Envelope) error {
			all <- fmt.Sprint("other ", env.EventID, " ", env.Attempts)
			if env.EventID == "a-00000" {
				paused.down.Store(false)
				time.Sleep(10 * time.Second)
			}
			return nil
		})
		time.Sleep(minute)
		var log []string
		for len(all) > 0 {
			log = append(log, <-all)
		}
		require.Equal(t, []string{"paused a-00000", "paused a-00001", "other a-00000 1", "other a-00001 0"}, log)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 2}, statuses(store))
	})
}

// While the outcome of an event cannot be stored, no later one of its run is.
func TestTheOutcomesOfARunAreStoredInOrder(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]error{"done": nil, "a retry": errors.New("boom")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &cutOff{Store: outboxtest.NewStore()}
				refuse := func(marks []outbox.Mark) bool {
					return slices.ContainsFunc(marks, func(m outbox.Mark) bool { return m.EventID == "a-00002" })
				}
				store.refuse.Store(&refuse)
				e, d := keyNode(t, store, outbox.OrderedByKey{}, func(env outbox.Envelope) error {
					if env.EventID == "a-00100" {
						return last
					}
					return nil
				})
				e.write(slices.Concat(numbered("a", 40), numbered("b", 500), []outbox.Envelope{of("a", "a-00100")})...)
				time.Sleep(minute)
				for _, row := range e.store.Rows() {
					want := outbox.StatusDone
					if env := row.Envelope; env.AggregateID == "a" && env.EventID >= "a-00002" {
						want = outbox.StatusNew
					}
					require.Equal(t, want, row.Status, row.Envelope.EventID)
				}
				require.Len(t, d.of("a"), 41)
				store.refuse.Store(nil)
				time.Sleep(minute)
				require.Equal(t, outbox.StatusDone, e.await("a-00039", outbox.StatusDone).Status)
			})
		})
	}
}

// A claim whose answer was lost is made again as it was, and its runs are delivered
// in order.
func TestAClaimOfRunsIsRepeatedWhenItsAnswerIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &cutOff{Store: outboxtest.NewStore()}
		store.forgets.Store(2)
		e, d := keyNode(t, store, outbox.OrderedByKey{}, nil)
		e.write(slices.Concat(numbered("a", 5), numbered("b", 5))...)
		time.Sleep(3 * time.Second) // less than an interval
		require.Equal(t, idsOf(numbered("a", 5)), d.of("a"))
		require.Equal(t, idsOf(numbered("b", 5)), d.of("b"))
		require.EqualValues(t, 3, store.claims.Load())
	})
}

// A run is kept as far as it was claimed without a gap, from its first event on.
func TestARunIsCutWhereTheClaimHasAGap(t *testing.T) {
	t.Parallel()
	for missing, want := range map[string]int{"a-00000": 0, "a-00002": 2} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &gappy{Store: outboxtest.NewStore(), missing: missing}
				var d diary
				e := start(t, outbox.Config{Store: store, Mode: outbox.OrderedByKey{Poll: outbox.PollOptions{Interval: time.Hour}}}, d.listen(nil))
				e.write(numbered("a", 4)...)
				time.Sleep(time.Second)
				synctest.Wait()
				require.Equal(t, idsOf(numbered("a", 4)), append(d.of("a"), idsOf(numbered("a", 4))[len(d.of("a")):]...))
				require.EqualValues(t, want, store.first.Load())
				for _, row := range e.store.Rows() {
					require.Empty(t, row.LockedBy, row.Envelope.EventID)
				}
			})
		})
	}
}

// gappy is a store whose first claim misses a row, which another node has just then.
type gappy struct {
	*outboxtest.Store
	missing string
	claims  atomic.Int64
	first   atomic.Int64 // events that were delivered of the first claim
}

func (s *gappy) memory() *outboxtest.Store { return s.Store }

func (s *gappy) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if s.claims.Add(1) == 1 {
		q.EventIDs = slices.DeleteFunc(slices.Clone(q.EventIDs), func(id string) bool { return id == s.missing })
	}
	return s.Store.Claim(ctx, db, q)
}

func (s *gappy) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if s.claims.Load() == 1 && kind == outbox.OutcomeDone {
		s.first.Add(int64(len(marks)))
	}
	return s.Store.Mark(ctx, db, kind, marks)
}

// A listener that panics or ends its goroutine fails its event alone, and the rest of
// the run waits for the retry.
func TestAListenerThatDoesNotReturnEndsItsRun(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"panics": func() { panic("boom") }, "ends its goroutine": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				first := true
				e, d := keyNode(t, &cutOff{Store: outboxtest.NewStore()}, outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: 1}}, func(env outbox.Envelope) error {
					if env.EventID == "a-00001" && first {
						first = false
						end()
					}
					return nil
				})
				e.write(numbered("a", 4)...)
				time.Sleep(time.Second)
				require.Equal(t, []string{"a-00000", "a-00001", "a-00001", "a-00002", "a-00003"}, d.of("a"))
				for _, row := range e.store.Rows() {
					require.Equal(t, outbox.StatusDone, row.Status)
					require.Empty(t, row.LockedBy)
				}
			})
		})
	}
}

// Close lets runs be delivered while its time lasts, and then gives back the rest.
func TestCloseGivesBackTheRestOfARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		e, d := keyNode(t, &cutOff{Store: store}, outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: 1}}, func(outbox.Envelope) error {
			time.Sleep(time.Second)
			return nil
		})
		e.write(slices.Concat(numbered("a", 20), numbered("b", 20))...)
		time.Sleep(2500 * time.Millisecond)
		require.NoError(t, e.Close(t.Context()))
		n := len(d.of("a"))
		require.Greater(t, n, 6, "it drains")
		require.Less(t, n, 10)
		for _, row := range store.Rows() {
			require.Empty(t, row.LockedBy)
			require.Zero(t, row.Attempts)
		}
		_, next := keyNode(t, &cutOff{Store: store}, outbox.OrderedByKey{}, nil)
		time.Sleep(time.Second)
		require.Equal(t, idsOf(numbered("a", 20)), append(d.of("a"), next.of("a")...))
		require.Equal(t, idsOf(numbered("b", 20)), next.of("b"))
	})
}
