package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

func TestABurstOfHotDropsIsAFewLinesWhoseCountsAddUp(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(e *engine){
		"when the minute is over":   func(*engine) { time.Sleep(2 * time.Minute) },
		"when the outbox is closed": func(e *engine) { _ = e.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				book := &logbook{}
				leave := make(chan struct{})
				e := start(t, outbox.Config{Logger: slog.New(book), Mode: outbox.SingleNode{
					Dispatch: outbox.DispatchOptions{Workers: 1, HotCapacity: 1, DrainTimeout: time.Minute},
					Poll:     outbox.PollOptions{Interval: time.Hour, SkipRecent: time.Hour},
				}}, func(context.Context, outbox.Envelope) error {
					<-leave
					return nil
				})
				e.write(said("running"))
				synctest.Wait()
				e.write(said("queued"))
				var wg sync.WaitGroup
				for i := range 10 {
					wg.Go(func() {
						for j := range 1000 {
							e.write(said(fmt.Sprintf("%d-%d", i, j)))
							if j%250 == 0 {
								time.Sleep(500 * time.Millisecond)
							}
						}
					})
				}
				wg.Wait()
				time.AfterFunc(5*time.Second, func() { close(leave) })
				end(e)
				lines := book.about("the hot queue is full or closed")
				require.EqualValues(t, 10_000, counted(lines))
				require.LessOrEqual(t, len(lines), 5)
				for _, l := range lines {
					require.Equal(t, slog.LevelWarn, l.level)
				}
				time.Sleep(10 * time.Minute)
				require.Len(t, book.about("the hot queue is full or closed"), len(lines), "nothing is logged afterwards")
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}

// full starts an outbox whose hot queue is full until leave is called: every further event is a drop.
func full(t *testing.T, book *logbook) (e *engine, leave func()) {
	t.Helper()
	left := make(chan struct{})
	leave = sync.OnceFunc(func() { close(left) })
	e = start(t, outbox.Config{Logger: slog.New(book), Mode: outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{Workers: 1, HotCapacity: 1},
		Poll:     outbox.PollOptions{Interval: 24 * time.Hour, SkipRecent: 24 * time.Hour},
	}}, func(context.Context, outbox.Envelope) error {
		<-left
		return nil
	})
	t.Cleanup(leave)
	e.write(said("running"))
	synctest.Wait()
	e.write(said("queued"))
	return e, leave
}

func TestASingleHotDropIsLoggedAtOnceAndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e, _ := full(t, book)
		for range 3 {
			e.write(said(""))
			require.EqualValues(t, 1, counted(book.about("full or closed")[len(book.about("full or closed"))-1:]))
			time.Sleep(3 * time.Minute)
		}
		require.Len(t, book.about("full or closed"), 3)
	})
}

func TestCloseLogsTheHotDropsThatWereHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e, leave := full(t, book)
		for range 100 {
			e.write(said(""))
		}
		require.EqualValues(t, 1, counted(book.about("full or closed")))
		leave()
		require.NoError(t, e.Close(context.Background()))
		require.EqualValues(t, 100, counted(book.about("full or closed")))
	})
}

func TestALogHandlerMayWriteEventsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e, _ := full(t, book)
		var wrote atomic.Int64
		book.write = func() {
			if wrote.Add(1) <= 3 {
				e.write(said(""))
			}
		}
		e.write(said(""))
		time.Sleep(10 * time.Minute)
		require.EqualValues(t, 4, counted(book.about("full or closed")))
	})
}
