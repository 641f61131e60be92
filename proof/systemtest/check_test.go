package systemtest

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fault is what happened to the database, and when.
type fault struct {
	began time.Time // before the first server was killed
	over  time.Time // after clients could reach the survivor
	// stored are the events whose outcome the survivor had when it took over. None of
	// them may be delivered after it did, at the time frozen.
	stored []string
	frozen time.Time
}

// storedNow are the events that are DONE or DEAD.
func storedNow(t testing.TB, db *sql.DB) []string {
	t.Helper()
	return column(t, db, "SELECT event_id FROM outbox_event WHERE status IN (1, 3)")
}

// expire makes the leases of nodes with such names expire, as a long outage does.
func expire(t testing.TB, db *sql.DB, nodes string) {
	t.Helper()
	var err error
	require.True(t, eventually(patience, func() bool { // nodes do not wait
		_, err = db.ExecContext(t.Context(), "UPDATE outbox_event SET locked_at = '2001-01-01' WHERE locked_at IS NOT NULL AND locked_by LIKE '"+nodes+"'")
		return err == nil
	}), err)
}

// settle waits until nothing is left to deliver, and to store.
func settle(t testing.TB, db *sql.DB) {
	t.Helper()
	if eventually(patience, func() bool {
		var left int
		err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2)").Scan(&left)
		return err == nil && left == 0
	}) {
		return
	}
	left := column(t, db, "SELECT CONCAT(event_id, ' status ', status, ' attempts ', attempts, ' lease ', COALESCE(locked_by, '-')) FROM outbox_event WHERE status IN (0, 2)")
	t.Fatalf("%d events are not delivered: %v", len(left), left[:min(len(left), 10)])
}

// check compares what the shop was told and what was delivered with the surviving
// database. The lost are the events that an asynchronous standby may have lost, and the
// repeated those that may be delivered once more for that.
func (s *shop) check(t testing.TB, db *sql.DB, lost, repeated []string, faults ...fault) {
	t.Helper()
	orders := setOf(column(t, db, "SELECT id FROM orders"))
	events := setOf(column(t, db, "SELECT event_id FROM outbox_event"))
	finished := setOf(storedNow(t, db))
	ends, deliveries := s.record()
	mayBeLost, mayRepeat := setOf(lost), setOf(repeated)
	counts := map[string]int{}
	for id, got := range ends {
		counts[string(got)]++
		require.Equalf(t, orders[id], events[id], "order %s (%s): its row is there: %v, its event: %v", id, got, orders[id], events[id])
		switch {
		case got == acknowledged && !mayBeLost[id]:
			require.Truef(t, orders[id], "order %s was acknowledged and is lost", id)
		case got == rolledBack:
			require.Falsef(t, orders[id], "order %s was rolled back and is there: %v", id, s.errs[id])
		case got == unknown && orders[id]:
			counts["unknown and committed"]++
		}
		if events[id] {
			require.Truef(t, finished[id], "order %s is not finished", id)
			require.NotEmptyf(t, deliveries[id], "order %s was never delivered", id)
		}
	}
	require.Equal(t, len(orders), len(events), "orders and events")
	for id, calls := range deliveries {
		if !events[id] {
			require.Truef(t, mayBeLost[id], "order %s (%s) was delivered and is not there", id, ends[id])
			counts["delivered and lost"]++
		}
		if len(calls) > 1 {
			counts["delivered more than once"]++
			if !mayRepeat[id] {
				explain(t, faults, id, calls)
			}
		}
	}
	var took []time.Duration
	for _, f := range faults {
		f.nothingStoredIsDelivered(t, deliveries, mayRepeat)
		took = append(took, f.over.Sub(f.began).Round(100*time.Millisecond))
	}
	t.Logf("%d orders: %v; %d delivered, %d outcomes refused, %d faults, which took %v",
		len(ends), counts, len(deliveries), s.leaseLost.Load(), len(faults), took)
}

// explain checks that the event was in hand at a fault, each time it was delivered again:
// delivered before the survivor took over, and again after the fault began.
func explain(t testing.TB, faults []fault, id string, calls []delivery) {
	t.Helper()
	for i, again := range calls[1:] {
		explained := slices.ContainsFunc(faults, func(f fault) bool {
			return calls[i].at.Before(f.over) && again.at.After(f.began) && !slices.Contains(f.stored, id)
		})
		require.Truef(t, explained, "order %s was delivered by %v, and no fault explains it", id, calls)
	}
}

// nothingStoredIsDelivered checks that what the survivor had stored when it took over
// was not delivered later.
func (f fault) nothingStoredIsDelivered(t testing.TB, deliveries map[string][]delivery, mayRepeat map[string]bool) {
	t.Helper()
	for _, id := range f.stored {
		late := slices.ContainsFunc(deliveries[id], func(d delivery) bool { return d.at.After(f.frozen) })
		require.Falsef(t, late && !mayRepeat[id], "order %s was stored, and then delivered: %v", id, deliveries[id])
	}
}

func setOf(items []string) map[string]bool {
	set := make(map[string]bool, len(items))
	for _, item := range items {
		set[item] = true
	}
	return set
}
