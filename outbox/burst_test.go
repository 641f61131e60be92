package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
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

func TestASingleHotDropIsLoggedAtOnceAndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := build(t, outbox.Config{Logger: slog.New(book)}, nil) // not started: everything is a drop
		for range 3 {
			e.write(said(""))
			require.EqualValues(t, 1, counted(book.about("full or closed")[len(book.about("full or closed"))-1:]))
			time.Sleep(3 * time.Minute)
		}
		require.Len(t, book.all(), 3)
	})
}

func TestCloseLogsTheHotDropsThatWereHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := build(t, outbox.Config{Logger: slog.New(book)}, nil)
		for range 100 {
			e.write(said(""))
		}
		require.EqualValues(t, 1, counted(book.about("full or closed")))
		require.NoError(t, e.Close(context.Background()))
		require.EqualValues(t, 100, counted(book.about("full or closed")))
	})
}

func TestALogHandlerMayWriteEventsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := build(t, outbox.Config{Logger: slog.New(book)}, nil)
		left := 3
		book.write = func() {
			if left--; left >= 0 {
				e.write(said(""))
			}
		}
		e.write(said(""))
		time.Sleep(10 * time.Minute)
		require.EqualValues(t, 4, counted(book.about("full or closed")))
	})
}
