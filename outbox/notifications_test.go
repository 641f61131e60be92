package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// bus is a notifier within the process. What is sent while deaf does not arrive,
// and err, if set, is what sending and listening return.
type bus struct {
	mu     sync.Mutex
	sent   []time.Time
	tables map[string]bool
	wakes  map[int]func()
	serial int
	deaf   bool
	err    error
	cut    chan struct{} // closed: the listeners lose their connection
}

func newBus() *bus {
	return &bus{tables: map[string]bool{}, wakes: map[int]func(){}, cut: make(chan struct{})}
}

func (b *bus) Notify(_ context.Context, _ outbox.DB, table string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tables[table] = true
	if b.err != nil {
		return b.err
	}
	b.sent = append(b.sent, time.Now())
	if !b.deaf {
		for _, wake := range b.wakes {
			wake()
		}
	}
	return nil
}

func (b *bus) Listen(ctx context.Context, _ outbox.DB, table string, wake func()) error {
	b.mu.Lock()
	err, cut := b.err, b.cut
	b.tables[table] = true
	if err == nil {
		b.serial++
		id := b.serial
		b.wakes[id] = wake
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.wakes, id)
		}()
		wake()
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-cut:
		return errors.New("the connection is lost")
	}
}

func (b *bus) set(change func(b *bus)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

// disconnect ends all connections.
func (b *bus) disconnect() {
	b.set(func(b *bus) {
		close(b.cut)
		b.cut = make(chan struct{})
	})
}

// take returns the times at which notifications were sent, and forgets them.
func (b *bus) take() (sent []time.Time) {
	b.set(func(b *bus) { sent, b.sent = b.sent, nil })
	return sent
}

var hourly = outbox.PollOptions{Interval: time.Hour}

// heard collects the ids of the events that a process delivers.
func heard(ids chan<- string) func(context.Context, outbox.Envelope) error {
	return func(_ context.Context, env outbox.Envelope) error {
		ids <- env.EventID
		return nil
	}
}

func TestAnotherProcessDeliversAtOnceWhatThisOneDoesNot(t *testing.T) {
	t.Parallel()
	many := outbox.MultiNode{Poll: hourly}
	single := outbox.SingleNode{Poll: hourly}
	for name, tt := range map[string]struct {
		writer, deliverer outbox.Mode
		write             func(e *engine)
	}{
		"an event of a process that only writes": {outbox.WriterOnly{}, many, func(e *engine) { e.write(said("it")) }},
		"a delayed one": {outbox.WriterOnly{}, many, func(e *engine) {
			env := said("it")
			env.DeliverAfter = 30 * time.Second
			e.write(env)
		}},
		"an unmanaged one": {outbox.WriterOnly{}, many, func(e *engine) {
			_, err := e.Writer().WriteUnmanaged(e.t.Context(), e.store.DB(), []outbox.Envelope{said("it")})
			require.NoError(e.t, err)
		}},
		"an unmanaged one that is committed a second later": {outbox.WriterOnly{}, many, func(e *engine) {
			scope := outboxtest.NewScope(e.store.DB())
			_, err := e.Writer().WriteUnmanaged(e.t.Context(), scope, []outbox.Envelope{said("it")})
			require.NoError(e.t, err)
			time.Sleep(900 * time.Millisecond)
			require.NoError(e.t, scope.Commit())
		}},
		"one whose commit is in doubt": {outbox.WriterOnly{}, many, func(e *engine) {
			scope := outboxtest.NewScope(e.store.DB())
			_, err := e.Writer().WriteScope(e.t.Context(), scope, []outbox.Envelope{said("it")})
			require.NoError(e.t, err)
			require.NoError(e.t, scope.CommitUnknown(true))
		}},
		"a standby's":         {single, single, func(e *engine) { e.write(said("it")) }},
		"a standby's delayed": {single, single, func(e *engine) { env := said("it"); env.DeliverAfter = time.Second; e.write(env) }},
		"one of Ordered":      {outbox.Ordered{Poll: hourly}, outbox.Ordered{Poll: hourly}, func(e *engine) { e.write(said("it")) }},
		"one that Wake stands for": {outbox.WriterOnly{}, many, func(e *engine) {
			env := said("it")
			env.AggregateType, env.OccurredAt, env.AvailableAt = outbox.Global, time.Now(), time.Now()
			scope := outboxtest.NewScope(e.store.DB())
			require.NoError(e.t, e.store.Insert(e.t.Context(), scope, []outbox.Envelope{env}, "", time.Time{}))
			require.NoError(e.t, scope.Commit())
			e.Wake()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, b, ids := outboxtest.NewStore(), newBus(), make(chan string, 10)
				start(t, outbox.Config{Store: store, Mode: tt.deliverer, Notifier: b}, heard(ids))
				writer := start(t, outbox.Config{Store: store, Mode: tt.writer, Notifier: b}, func(context.Context, outbox.Envelope) error {
					t.Error("the writing process delivered the event")
					return nil
				})
				time.Sleep(time.Second) // what starting causes is over
				tt.write(writer)
				select {
				case id := <-ids:
					require.Equal(t, "it", id)
				case <-time.After(time.Minute):
					t.Fatal("the event waited for the interval")
				}
			})
		})
	}
}

func TestAFullHotQueueNotifiesTheOtherNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b, ids := outboxtest.NewStore(), newBus(), make(chan string, 10)
		leave := make(chan struct{})
		defer close(leave)
		full := start(t, outbox.Config{Store: store, Notifier: b, Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: 1, HotCapacity: 1, ColdCapacity: 1}, Poll: hourly,
		}}, func(context.Context, outbox.Envelope) error {
			<-leave
			return nil
		})
		start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Poll: hourly}, Notifier: b}, heard(ids))
		time.Sleep(time.Second) // what starting causes is over
		for i := range 6 {      // one runs, one is in each queue
			full.write(said(fmt.Sprint(i)))
			time.Sleep(time.Second)
		}
		for range 3 {
			select {
			case <-ids:
			case <-time.After(time.Minute):
				t.Fatal("an event waited for the interval")
			}
		}
	})
}

// A node that closes gives its leases back first and notifies afterwards.
func TestANodeThatClosesNotifiesOfTheLeasesItGaveBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b, ids := outboxtest.NewStore(), newBus(), make(chan string, 10)
		closing := start(t, outbox.Config{Store: store, Notifier: b, Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: 1, DrainTimeout: time.Second}, Poll: hourly,
		}}, func(ctx context.Context, _ outbox.Envelope) error {
			<-ctx.Done()
			return ctx.Err()
		})
		closing.write(said("running"))
		closing.write(said("queued"))
		start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Poll: hourly}, Notifier: b}, heard(ids))
		time.Sleep(time.Second) // what starting causes is over
		require.NoError(t, closing.Close(t.Context()))
		for range 2 {
			select {
			case <-ids:
			case <-time.After(time.Minute):
				t.Fatal("an event waited for the interval")
			}
		}
	})
}

// What becomes due later was on the agenda of the process that closes, and no other one's.
func TestWhatBecomesDueLaterIsDeliveredInTimeWhenItsProcessCloses(t *testing.T) {
	t.Parallel()
	delayed := said("it")
	delayed.DeliverAfter = 10 * time.Second
	for name, env := range map[string]outbox.Envelope{"a retry": said("it"), "a delayed event": delayed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, b, ids := outboxtest.NewStore(), newBus(), make(chan string, 10)
				mode := outbox.MultiNode{Poll: hourly}
				start(t, outbox.Config{Store: store, Mode: mode, Notifier: b}, heard(ids))
				closing := start(t, outbox.Config{Store: store, Mode: mode, Notifier: b, RetryPolicy: afterAMinute}, func(context.Context, outbox.Envelope) error {
					time.Sleep(2 * time.Second) // into the closing
					return errors.New("no")
				})
				time.Sleep(time.Second)
				closing.write(env)
				time.Sleep(time.Second)
				require.NoError(t, closing.Close(t.Context()))
				select {
				case <-ids:
				case <-time.After(2 * time.Minute):
					t.Fatal("the event waited for the interval")
				}
			})
		})
	}
}

func TestAProcessThatDeliversItselfDoesNotNotify(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Dispatch: outbox.DispatchOptions{HotCapacity: 1}, Poll: hourly},
		"many nodes":  outbox.MultiNode{Poll: hourly},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, ids := newBus(), make(chan string, 100)
				e := start(t, outbox.Config{Mode: mode, Notifier: b}, heard(ids))
				time.Sleep(time.Second)
				require.Len(t, b.take(), 1, "the test that notifications arrive")
				for i := range 50 {
					e.write(said(fmt.Sprint(i)))
				}
				for range 50 {
					<-ids
				}
				time.Sleep(time.Second)
				require.Empty(t, b.take())
				require.NoError(t, e.Close(t.Context()))
				require.Len(t, b.take(), 1, "the others look for what becomes due later")
				require.Equal(t, map[string]bool{e.store.Table(): true}, b.tables)
			})
		})
	}
}

func TestABurstOfCommitsIsAFewNotifications(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		e := start(t, outbox.Config{Mode: outbox.WriterOnly{}, Notifier: b}, nil)
		began := time.Now()
		var wg sync.WaitGroup
		for w := range 10 {
			wg.Go(func() {
				for i := range 100 {
					e.write(said(fmt.Sprintf("%d-%d", w, i)))
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		last := time.Now()
		time.Sleep(time.Second)
		sent := b.take()
		require.LessOrEqual(t, len(sent), 6, "1,000 commits in 100 ms: at most one in 20 ms, and one after the last")
		require.Equal(t, began, sent[0], "the first is sent at once")
		for i := range sent[1:] {
			require.GreaterOrEqual(t, sent[i+1].Sub(sent[i]), 20*time.Millisecond)
		}
		require.False(t, sent[len(sent)-1].Before(last.Add(-time.Millisecond)), "the last commit has a notification, too")
		require.NoError(t, e.Close(t.Context()))
		require.Empty(t, b.take())
	})
}

func TestWhatIsStillToBeSentIsSentByClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		e := start(t, outbox.Config{Mode: outbox.WriterOnly{}, Notifier: b}, nil)
		e.write(said("first"))
		synctest.Wait()
		e.write(said("second"))
		require.NoError(t, e.Close(t.Context()))
		require.Len(t, b.take(), 2)
	})
}

func TestANotificationThatCouldNotBeSentIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, book := newBus(), &logbook{}
		e := start(t, outbox.Config{Mode: outbox.WriterOnly{}, Notifier: b, Logger: slog.New(book)}, nil)
		b.set(func(b *bus) { b.err = errors.New("server away") })
		e.write(said("it"))
		time.Sleep(10 * time.Second)
		b.set(func(b *bus) { b.err = nil })
		time.Sleep(time.Second)
		require.Len(t, b.take(), 1)
		lines := book.about("a notification could not be sent")
		require.Len(t, lines, 1)
		require.Equal(t, slog.LevelWarn, lines[0].level)
	})
}

// A process finds out at its next renewal that it lost the table. What it took into
// its hot queue until then is the other process's.
func TestAnEventThatIsGivenUpNotifiesTheProcessThatHoldsTheTable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b, book, ids := outboxtest.NewStore(), newBus(), &logbook{}, make(chan string, 10)
		leave := make(chan struct{})
		loser := start(t, outbox.Config{Store: store, Notifier: b, Logger: slog.New(book), Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{Workers: 1}, Poll: hourly,
		}}, func(context.Context, outbox.Envelope) error {
			<-leave
			return nil
		})
		start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Poll: hourly}, Notifier: b}, heard(ids))
		time.Sleep(2100 * time.Millisecond) // the next renewal is at 4 s
		loser.write(said("running"))
		hold(t, store, "", 0)
		require.Equal(t, "running", <-ids) // at 3 s
		loser.write(said("queued"))
		time.Sleep(2 * time.Second)
		require.Empty(t, ids)
		close(leave)
		select {
		case id := <-ids:
			require.Equal(t, "queued", id)
		case <-time.After(time.Minute):
			t.Fatal("the event waited for the interval")
		}
	})
}

// slowBus needs a moment for each notification.
type slowBus struct {
	*bus
	sent atomic.Int32
}

func (s *slowBus) Notify(ctx context.Context, _ outbox.DB, _ string) error {
	select {
	case <-time.After(time.Millisecond):
		s.sent.Add(1)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A short program writes an event and closes while the notification is on its way.
func TestCloseSendsTheNotificationThatItInterrupts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &slowBus{bus: newBus()}
		e := start(t, outbox.Config{Mode: outbox.WriterOnly{}, Notifier: slow}, handled)
		e.write(said("e"))
		synctest.Wait() // the sender has begun
		require.NoError(t, e.Close(context.Background()))
		require.Positive(t, slow.sent.Load())
	})
}
