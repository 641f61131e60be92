package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// dyingClaimer is the connection of a node that dies during its first claim, which misses a
// row: another node has it just then, and gives it back.
type dyingClaimer struct {
	*cutOff
	missing string
}

func (s *dyingClaimer) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	q.EventIDs = slices.DeleteFunc(slices.Clone(q.EventIDs), func(id string) bool { return id == s.missing })
	b, err := s.cutOff.Claim(ctx, db, q)
	s.down.Store(true)
	return b, err
}

// The leases of a node that died have a gap: its claim missed a row, and it died before
// it gave back those behind the gap. Who takes over its run delivers it up to the gap,
// and then what is in the gap and behind it.
func TestATakeoverEndsAtAGapInTheLeases(t *testing.T) {
	t.Parallel()
	for missing, before := range map[string]int{"a-00001": 1, "a-00003": 3} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := outboxtest.NewStore()
				died := &dyingClaimer{cutOff: &cutOff{Store: store}, missing: missing}
				var first diary
				e := start(t, outbox.Config{
					Store: died, Mode: outbox.OrderedByKey{Claim: outbox.ClaimOptions{LeaseDuration: minute}},
				}, first.listen(nil))
				e.write(numbered("a", 6)...)
				time.Sleep(time.Second)
				require.Equal(t, idsOf(numbered("a", before)), first.of("a"))
				leased := 0
				for _, row := range store.Rows() {
					if row.LockedBy != "" {
						leased++
					}
				}
				require.Equal(t, 5, leased, "all but the gap")

				_, next := keyNode(t, &cutOff{Store: store}, outbox.OrderedByKey{}, nil)
				time.Sleep(3 * minute)
				require.Equal(t, idsOf(numbered("a", 6)), next.of("a"))
				for _, row := range store.Rows() {
					attempts := 0
					if row.Envelope.EventID == "a-00000" {
						attempts = 1
					}
					require.Equal(t, fmt.Sprint("DONE ", attempts), fmt.Sprint(row.Status, " ", row.Envelope.Attempts), row.Envelope.EventID)
				}
			})
		})
	}
}

// lateClaimer is the connection of a node whose claims do not get through for a while.
type lateClaimer struct {
	*cutOff
	cut    atomic.Bool
	failed atomic.Int64
}

func (s *lateClaimer) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if s.cut.Load() {
		s.failed.Add(1)
		return outbox.Batch{}, errCut
	}
	return s.cutOff.Claim(ctx, db, q)
}

// A node read a run to take over, and its claim gets through only when another node has
// had the run, and one event more, for a whole lease. What the other node stores late of
// that event is refused: it comes again, behind the others.
func TestAClaimIsNotMadeFromAnOldReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		ids := idsOf(numbered("a", 4))
		claim := func(lease string, ids []string) {
			b, err := store.Claim(t.Context(), store.DB(), outbox.ClaimQuery{
				Now: time.Now(), LeaseDuration: minute, Limit: len(ids), EventIDs: ids, Lease: lease,
			})
			require.NoError(t, err)
			require.Len(t, b.Envelopes, len(ids))
		}
		writer := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
		writer.write(numbered("a", 4)...)
		claim("dead/1", ids[:3])
		time.Sleep(minute + time.Second)

		late := &lateClaimer{cutOff: &cutOff{Store: store}}
		late.cut.Store(true)
		var d diary
		start(t, outbox.Config{
			Store: late, Mode: outbox.OrderedByKey{Claim: outbox.ClaimOptions{LeaseDuration: minute}},
		}, d.listen(func(env outbox.Envelope) error {
			if env.EventID == ids[0] { // the other node goes on
				marks := make([]outbox.Mark, len(ids))
				for i, id := range ids {
					marks[i] = outbox.Mark{EventID: id, Lease: "other/1"}
				}
				_, err := store.Mark(t.Context(), store.DB(), outbox.OutcomeDone, marks)
				return err
			}
			return nil
		}))
		time.Sleep(10 * time.Second)
		require.Positive(t, late.failed.Load())
		claim("other/1", ids)
		time.Sleep(minute + 10*time.Second)
		late.cut.Store(false)
		time.Sleep(2 * minute)
		require.Equal(t, ids, d.of("a"))
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 4}, statuses(store))
	})
}
