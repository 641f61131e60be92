package conformance

import (
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// runsBegin asks which events begin their keys, for keys with rows of each state. Leases, due times
// that are not over, and paused kinds make no difference.
func runsBegin(s *storeSuite) {
	cases := []struct {
		name  string
		rows  []keyRow
		first int
	}{
		{"two events", []keyRow{{}, {}}, 0},
		{"by due time", []keyRow{{due: time.Minute}, {}}, 1},
		{"a retry", []keyRow{{}, {}, retry}, 2},
		{"two retries", []keyRow{{}, {status: outbox.StatusRetry, due: time.Minute}, retry}, 2},
		{"a dead event", []keyRow{dead, {}, {}}, 1},
		{"a dead event and a retry", []keyRow{dead, {}, retry}, 2},
		{"delivered events", []keyRow{done, {}, done}, 1},
		{"in delivery", []keyRow{held, held}, 0},
		{"a lost lease", []keyRow{lost, {}}, 0},
		{"not due yet", []keyRow{{due: 2 * later}}, 0},
		{"a paused kind", []keyRow{paused, {}}, 0},
	}
	var all, want []string
	for _, c := range cases {
		ids := s.keyed(c.name, c.rows...)
		all, want = append(all, ids...), append(want, ids[c.first])
	}
	unordered := s.events(3)
	for i := range unordered {
		unordered[i].AggregateType, unordered[i].AggregateID = "Order", ""
	}
	s.insert(unordered...)
	all, want = append(all, idsOf(unordered)...), append(want, idsOf(unordered)...)
	s.begins(all, want)
	s.begins(want[1:2], want[1:2])

	// A row that is written later may come first.
	s.keyed("two events", keyRow{due: -time.Minute})
	s.begins(want, want[1:])
}

func (s *storeSuite) begins(ids, want []string) {
	s.t.Helper()
	got, err := s.Store.(outbox.RunReader).BeginKeys(s.ctx, s.DB, ids)
	s.ok("BeginKeys", err)
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		s.t.Fatalf("BeginKeys: got %q, want %q", got, want)
	}
}
