package outbox_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// A DEAD event blocks its key until it is replayed, and then comes first; or its key
// goes on without it.
func TestADeadEventBlocksItsKeyOrIsSkipped(t *testing.T) {
	t.Parallel()
	for onDead, want := range map[outbox.OnDead][]string{
		outbox.BlockKey: {"a-00000", "a-00001", "a-00001", "a-00002", "a-00003"},
		outbox.SkipDead: {"a-00000", "a-00001", "a-00002", "a-00003", "a-00001"},
	} {
		t.Run(fmt.Sprint(onDead), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var d diary
				dead := true
				e := start(t, byKey(outbox.OrderedByKey{OnDead: onDead}), d.listen(func(env outbox.Envelope) error {
					if env.EventID == "a-00001" && dead {
						dead = false
						return outbox.Dead(errors.New("broken"))
					}
					return nil
				}))
				e.write(slices.Concat(numbered("a", 4), numbered("b", 4))...)
				time.Sleep(time.Minute)
				require.Equal(t, idsOf(numbered("b", 4)), d.of("b"))
				require.Equal(t, outbox.StatusDead, e.await("a-00001", outbox.StatusDead).Status)
				if onDead == outbox.BlockKey {
					require.Equal(t, want[:2], d.of("a"))
				}
				require.NoError(t, e.DeadLetters().Replay(t.Context(), "a-00001"))
				time.Sleep(time.Second) // less than the interval
				require.Equal(t, want, d.of("a"))
			})
		})
	}
}

// Deleting a DEAD event that blocks its key lets the key go on at once.
func TestADeletedDeadEventBlocksNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		e := start(t, byKey(outbox.OrderedByKey{}), d.listen(func(env outbox.Envelope) error {
			if env.EventID == "a-00000" {
				return outbox.Dead(errors.New("broken"))
			}
			return nil
		}))
		e.write(numbered("a", 2)...)
		time.Sleep(time.Second)
		_, err := e.DeadLetters().Delete(t.Context(), "a-00000")
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, idsOf(numbered("a", 2)), d.of("a"))
	})
}

// An event that kills its process, again and again, ends DEAD; its key is blocked and
// the others go on.
func TestAnEventThatKillsItsProcessBlocksItsKeyAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		writer := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
		keys := named("k", 20)
		for _, key := range keys {
			writer.write(numbered(key, 10)...)
		}
		time.Sleep(time.Millisecond)
		writer.write(of("k0007", "poison"))
		time.Sleep(time.Millisecond)
		writer.write(of("k0007", "behind"))
		deaths := 0
		for {
			way, died := &cutOff{Store: store}, make(chan struct{}, 1)
			e, _ := keyNode(t, way, outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{DrainTimeout: time.Millisecond}}, func(env outbox.Envelope) error {
				if way.down.Load() { // it is dead
					return outbox.Defer(time.Hour)
				}
				if env.EventID == "poison" {
					way.down.Store(true)
					died <- struct{}{}
				}
				return nil
			})
			select {
			case <-died:
				deaths++
				_ = e.Close(t.Context())
				continue
			case <-time.After(10 * minute):
			}
			break
		}
		// The first death is not counted: it may have been that of an event before.
		require.Equal(t, 10+1, deaths)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDead: 1, outbox.StatusNew: 1, outbox.StatusDone: 200}, statuses(store))
		row, _ := store.Row("poison")
		require.Equal(t, outbox.StatusDead, row.Status)
	})
}

// A row that cannot be decoded is DEAD when it is the first of its key, not before.
func TestAnUndecodableEventIsDeadInItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &cutOff{Store: outboxtest.NewStore()}
		first := true
		e := build(t, outbox.Config{Store: store, Mode: outbox.OrderedByKey{OnDead: outbox.SkipDead}}, nil)
		var d diary
		require.NoError(t, e.Register(outbox.On("", "Said", outbox.ListenerFunc(d.listen(func(outbox.Envelope) error {
			if first {
				first = false
				return outbox.Defer(time.Second)
			}
			return nil
		})))))
		e.write(numbered("a", 4)...)
		store.CorruptHeaders("a-00001")
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(500 * time.Millisecond)
		row, _ := store.Row("a-00001")
		require.Equal(t, outbox.StatusNew, row.Status)
		time.Sleep(time.Second)
		require.Equal(t, []string{"a-00000", "a-00000", "a-00002", "a-00003"}, d.of("a"))
		e.await("a-00001", outbox.StatusDead)
	})
}
