package conformance

import (
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// runsBegin asks which events begin their keys, for keys with rows of each state. Leases, due times
// that are not over, and paused kinds make no difference.
func runsBegin(s *storeSuite) {
	none := -1
	cases := []struct {
		name       string
		rows       []keyRow
		first      int // row; none: no row
		skippedFor int // with DEAD rows skipped
	}{
		{"two events", []keyRow{{}, {}}, 0, 0},
		{"by due time", []keyRow{{due: time.Minute}, {}}, 1, 1},
		{"a retry", []keyRow{{}, {}, retry}, 2, 2},
		{"two retries", []keyRow{{}, {status: outbox.StatusRetry, due: time.Minute}, retry}, 2, 2},
		{"a dead event", []keyRow{{}, dead}, none, 0},
		{"a dead event and a retry", []keyRow{dead, {}, retry}, none, 2},
		{"delivered events", []keyRow{done, {}, done}, 1, 1},
		{"in delivery", []keyRow{held, held}, 0, 0},
		{"a lost lease", []keyRow{lost, {}}, 0, 0},
		{"not due yet", []keyRow{{due: 2 * later}}, 0, 0},
		{"a paused kind", []keyRow{paused, {}}, 0, 0},
	}
	var all []string
	var want [2][]string
	for _, c := range cases {
		ids := s.keyed(c.name, c.rows...)
		for i, row := range []int{c.first, c.skippedFor} {
			if row != none {
				want[i] = append(want[i], ids[row])
			}
		}
		for i, row := range c.rows {
			if !row.status.Terminal() {
				all = append(all, ids[i])
			}
		}
	}
	unordered := s.events(3)
	for i := range unordered {
		unordered[i].AggregateType, unordered[i].AggregateID = "Order", ""
	}
	s.insert(unordered...)
	for i := range want {
		want[i] = append(want[i], idsOf(unordered)...)
	}
	all = append(all, idsOf(unordered)...)
	for i, skipDead := range []bool{false, true} {
		s.begins(all, skipDead, want[i])
	}
	s.begins(want[0][1:2], false, want[0][1:2])

	// A row that is written later may come first.
	s.keyed("two events", keyRow{due: -time.Minute})
	s.begins(want[0], false, want[0][1:])
}

func (s *storeSuite) begins(ids []string, skipDead bool, want []string) {
	s.t.Helper()
	got, err := s.Store.(outbox.RunReader).BeginKeys(s.ctx, s.DB, ids, skipDead)
	s.ok("BeginKeys", err)
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		s.t.Fatalf("BeginKeys, skipDead %v: got %q, want %q", skipDead, got, want)
	}
}
