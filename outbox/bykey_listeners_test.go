package outbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// One of two listeners is not done with an event: its row holds back the key, also for
// the other listener, and the row alone comes first when it is its turn. One of the
// listeners gets batches.
func TestAListenersRowHoldsBackItsKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		onDead outbox.OnDead
		answer func() error
		blocks bool // until it is replayed
		goesOn bool // without it
	}{
		"a retry": {answer: func() error {
			return outbox.RetryIn(time.Minute, errors.New("boom"))
		}},
		"a retry after": {answer: func() error { return outbox.Defer(time.Minute) }},
		"a death":       {answer: func() error { return outbox.Dead(errors.New("broken")) }, blocks: true},
		"a death that is skipped": {
			onDead: outbox.SkipDead, goesOn: true,
			answer: func() error { return outbox.Dead(errors.New("broken")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mail, search diary
				var failed calls
				e := startNamed(t, byKey(outbox.OrderedByKey{OnDead: c.onDead}),
					outbox.On("", "Said", outbox.ListenerFunc(mail.listen(func(env outbox.Envelope) error {
						if env.EventID == "a-00001" && failed.add(env.EventID) == 1 {
							return c.answer()
						}
						return nil
					})), outbox.Named("mail")),
					outbox.On("", "Said", outbox.BatchListener(outbox.BatchOptions{Size: 10, Wait: time.Millisecond}, batchDiary(t, &search, func(outbox.Envelope) error { return nil })), outbox.Named("search")))
				e.write(append(numbered("a", 4), numbered("b", 4)...)...)
				pass(50 * time.Second)
				all := idsOf(numbered("a", 4))
				require.Equal(t, idsOf(numbered("b", 4)), mail.of("b"))
				if c.goesOn {
					require.Equal(t, all, mail.of("a"))
				} else {
					require.Equal(t, all[:2], mail.of("a"))
					require.Equal(t, all[:2], search.of("a"))
				}
				if c.blocks || c.goesOn {
					page, err := e.DeadLetters().Find(t.Context(), outbox.DeadQuery{})
					require.NoError(t, err)
					require.Len(t, page.Rows, 1)
					require.Equal(t, "mail", page.Rows[0].Listener)
					require.NoError(t, e.DeadLetters().Replay(t.Context(), page.Rows[0].EventID))
				}
				pass(20 * time.Second)
				require.Equal(t, all, search.of("a"), "it was done")
				if c.goesOn {
					require.Equal(t, append(all, "a-00001"), mail.of("a"))
				} else {
					require.Equal(t, []string{all[0], all[1], all[1], all[2], all[3]}, mail.of("a"))
				}
				require.Empty(t, append(mail.bad, search.bad...))
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 9}, statuses(e.store))
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}

// A listener's row of a paused kind stays in the table like the event, in each mode.
func TestAListenersRowOfAPausedKindWaits(t *testing.T) {
	t.Parallel()
	for name, mode := range everyMode {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var h hearing
				e := startNamed(t, outbox.Config{Mode: mode}, h.on("mail", func(_ context.Context, call int) error {
					if call == 1 {
						return outbox.Defer(time.Minute)
					}
					return nil
				}), h.on("search", succeeds))
				e.write(said("e"))
				pass(30 * time.Second)
				require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
				pass(time.Hour)
				require.Len(t, h.all(), 2)
				require.Empty(t, rowsBy(e.store)["mail"].LockedBy)
				require.NoError(t, e.Resume(t.Context(), kindSaid))
				pass(time.Second)
				require.Len(t, h.all(), 3)
				require.Equal(t, outbox.StatusDone, rowsBy(e.store)["mail"].Status)
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}
