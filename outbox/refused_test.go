package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// choosy is a store that refuses marks, all those of a statement for one of them, or skips
// them, as a trigger does that returns NULL.
type choosy struct {
	*outboxtest.Store
	refuses func(outcome outbox.Outcome, m outbox.Mark) bool
	skips   bool
	healed  atomic.Bool
	marks   atomic.Int32
}

func (s *choosy) memory() *outboxtest.Store { return s.Store }

func (s *choosy) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	s.marks.Add(1)
	skipped, rest := map[string]outbox.RowState{}, make([]outbox.Mark, 0, len(marks))
	for _, m := range marks {
		switch {
		case s.healed.Load() || !s.refuses(outcome, m):
			rest = append(rest, m)
		case s.skips:
			row, ok := s.Row(m.EventID)
			skipped[m.EventID] = outbox.RowState{Exists: ok, Status: row.Status, Lease: row.LockedBy, DueAt: row.AvailableAt}
		default:
			return nil, fmt.Errorf("marking events: %w", &pgconn.PgError{Code: "22P05", Message: "refused"})
		}
	}
	left, err := s.Store.Mark(ctx, db, outcome, rest)
	maps.Copy(skipped, left)
	return skipped, err
}

// twice is a store whose first statement of several marks is refused, and the one after it
// fails. It notes the events in the order in which their outcomes are stored.
type twice struct {
	*outboxtest.Store
	failures int
	stored   []string
}

func (s *twice) memory() *outboxtest.Store { return s.Store }

func (s *twice) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	switch {
	case s.failures == 0 && len(marks) > 1:
		s.failures++
		return nil, fmt.Errorf("marking events: %w", &pgconn.PgError{Code: "22P05", Message: "refused"})
	case s.failures == 1:
		s.failures++
		return nil, errors.New("the connection is lost")
	}
	for _, m := range marks {
		s.stored = append(s.stored, m.EventID)
	}
	return s.Store.Mark(ctx, db, outcome, marks)
}

// A part of a refused statement that fails for another reason keeps its place in [outbox.Ordered].
func TestInOrderAPartOfARefusedStatementKeepsItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &twice{Store: outboxtest.NewStore()}
		e := build(t, outbox.Config{Store: store, Mode: outbox.Ordered{}}, handled)
		events := numbered("a", 9)
		e.write(events...)
		require.NoError(t, e.Start(t.Context()))
		pass(10 * time.Second)
		require.NoError(t, e.Close(context.Background()))
		require.Equal(t, 2, store.failures)
		var want []string
		for _, env := range events {
			want = append(want, env.EventID)
		}
		require.Equal(t, want, store.stored)
	})
}

func isASCII(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0 }

func TestATextThatTheDatabaseRefusesIsStoredInASCIIOrNotAtAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		store := &choosy{Store: outboxtest.NewStore(), refuses: func(_ outbox.Outcome, m outbox.Mark) bool {
			return !isASCII(m.Error) || strings.Contains(m.Error, "curse")
		}}
		e := start(t, outbox.Config{Store: store, Logger: slog.New(book)}, func(_ context.Context, env outbox.Envelope) error {
			switch {
			case strings.HasPrefix(env.EventID, "emoji"):
				return outbox.Dead(errors.New("not today \U0001F600é"))
			case strings.HasPrefix(env.EventID, "curse"):
				return outbox.Dead(errors.New("a curse"))
			}
			return outbox.Dead(errors.New("plain"))
		})
		var envs []outbox.Envelope
		for i := range 300 {
			envs = append(envs, said(fmt.Sprint("emoji", i)), said(fmt.Sprint("plain", i)))
		}
		e.write(append(envs, said("curse"))...)
		time.Sleep(10 * time.Second)
		for _, row := range store.Rows() {
			require.Equal(t, outbox.StatusDead, row.Status, row.Envelope.EventID)
			want := "plain"
			switch row.Envelope.EventID[:5] {
			case "emoji":
				want = `not today \U0001f600\u00e9`
			case "curse":
				want = ""
			}
			require.Equal(t, want, row.LastError, row.Envelope.EventID)
		}
		require.Less(t, store.marks.Load(), int32(100))
		require.NoError(t, e.Close(context.Background()))
		lines := book.about("without the texts")
		require.Len(t, lines, 1)
		require.Equal(t, "curse", lines[0].attrs["event_id"].String())
		require.Empty(t, book.about("could not be stored"))
	})
}

func TestOutcomesThatAreRefusedForEverHoldUpNothing(t *testing.T) {
	t.Parallel()
	poll := outbox.PollOptions{Interval: 30 * time.Second}
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Poll: poll},
		"multi node":  outbox.MultiNode{Poll: poll, Claim: outbox.ClaimOptions{LeaseDuration: 10 * time.Second}},
		"tenants":     outbox.MultiNode{Poll: poll, Claim: outbox.ClaimOptions{TenantsInTurn: true}},
		"ordered":     outbox.Ordered{Poll: poll},
	} {
		for _, skips := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, skipped %v", name, skips), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					const refused = 1100
					book := &logbook{}
					store := &choosy{Store: outboxtest.NewStore(), skips: skips, refuses: func(_ outbox.Outcome, m outbox.Mark) bool { return strings.HasPrefix(m.EventID, "bad") }}
					var c calls
					e := start(t, outbox.Config{Store: store, Logger: slog.New(book), Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
						c.add(env.EventID)
						return nil
					})
					for i := range refused {
						e.write(said(fmt.Sprint("bad", i)), said(fmt.Sprint("good", i)))
					}
					time.Sleep(time.Minute)
					done := func() (n int) {
						for _, row := range store.Rows() {
							if row.Status == outbox.StatusDone {
								n++
							}
						}
						return n
					}
					require.Equal(t, refused, done())
					before := store.marks.Load()
					time.Sleep(time.Hour)
					require.Less(t, store.marks.Load()-before, int32(5000), "they are tried ever more rarely")
					events, deliveries := c.total()
					require.Equal(t, [2]int{2 * refused, 2 * refused}, [2]int{events, deliveries}, "each is delivered once")
					e.write(said("goodbye"))
					time.Sleep(time.Minute)
					require.Equal(t, refused+1, done())
					lines := book.about("outcomes that the database refuses")
					require.Equal(t, slog.LevelError, lines[0].level)
					require.Contains(t, lines[0].attrs["event_id"].String(), "bad")
					require.Less(t, len(lines), 70)

					store.healed.Store(true)
					time.Sleep(10 * time.Minute)
					require.Equal(t, 2*refused+1, done())
					store.healed.Store(false)
					e.write(said("bad end"))
					time.Sleep(time.Minute)
					began := time.Now()
					require.ErrorContains(t, e.Close(context.Background()), "1 outcomes could not be stored")
					require.Less(t, time.Since(began), time.Second)
				})
			})
		}
	}
}

func TestARowThatCannotBeDecodedIsDeadWithoutATextThatIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &choosy{Store: outboxtest.NewStore(), refuses: func(outcome outbox.Outcome, m outbox.Mark) bool {
			return outcome == outbox.OutcomeDead && (m.Error != "" || m.EventID == "never")
		}}
		e := build(t, outbox.Config{Store: store}, handled)
		e.write(said("never"), said("spoilt"), said("good"))
		require.True(t, store.CorruptHeaders("never"))
		require.True(t, store.CorruptHeaders("spoilt"))
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(time.Minute)
		e.await("good", outbox.StatusDone)
		e.await("spoilt", outbox.StatusDead)
		require.Less(t, store.marks.Load(), int32(200))
		require.NoError(t, e.Close(context.Background()))
	})
}

// A row that was spoilt while its event is delivered gets the outcome of that delivery. Marked
// DEAD meanwhile, and replayed, it would be DONE without another delivery.
func TestARowThatIsSpoiltDuringItsDeliveryGetsItsOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, end := make(chan struct{}), make(chan struct{})
		e := start(t, outbox.Config{}, func(context.Context, outbox.Envelope) error {
			close(began)
			<-end
			return nil
		})
		e.write(said("spoilt"))
		<-began
		require.True(t, e.store.CorruptHeaders("spoilt"))
		time.Sleep(time.Minute)
		row, _ := e.store.Row("spoilt")
		require.Equal(t, outbox.StatusNew, row.Status)
		close(end)
		e.await("spoilt", outbox.StatusDone)
		require.NoError(t, e.Close(context.Background()))
	})
}
