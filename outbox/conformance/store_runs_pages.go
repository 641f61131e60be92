package conformance

import (
	"cmp"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// runsPages has ids that collations sort in different ways, in several types, and
// events without an aggregate id.
func runsPages(s *storeSuite) {
	ids := []string{"a", "B", "b", "A", "_x", "-x", "Zz", "zZ", "é", "e", "f", "01", "1", "10", "ß", "ss", "a-b", "ab", "aB", "10%", "a\tb"}
	var envs []outbox.Envelope
	want := map[outbox.EventKey][]string{}
	for _, aggregate := range []outbox.AggregateType{"b", "A", "a-b", "a", "a b", "Ä"} {
		for i, id := range append(ids, "", "", "") {
			for range 1 + i%3 {
				env := s.event(0)
				env.AggregateType, env.AggregateID = aggregate, id
				envs = append(envs, env)
				key := outbox.EventKey{AggregateType: aggregate, ID: cmp.Or(id, env.EventID)}
				want[key] = append(want[key], env.EventID)
			}
		}
	}
	s.insert(envs...)
	var all [][]string
	for _, run := range want {
		all = append(all, run)
	}
	for _, limit := range []int{3, 7, 1000} {
		s.sameRuns(fmt.Sprintf("runs by %d rows", limit), s.runs(outbox.RunQuery{Limit: limit}).EventIDs, all)
	}
}

// runsCut asks for fewer rows than a run has, and for as many or more.
func runsCut(s *storeSuite) {
	var all, cut [][]string
	for key := range 4 {
		ids := s.keyed(fmt.Sprint("key ", key), keyRow{}, keyRow{}, keyRow{}, keyRow{})
		all, cut = append(all, ids[:3]), append(cut, ids[:2])
	}
	s.sameRuns("runs by two rows", s.runs(outbox.RunQuery{Limit: 2}).EventIDs, cut)
	for _, limit := range []int{3, 4, 5, 6, 7, 12, 13} {
		s.sameRuns(fmt.Sprintf("runs by %d rows", limit), s.runs(outbox.RunQuery{Limit: limit}).EventIDs, all)
	}
}

// runsLeaseBehindLimit has a row that is in no run, so that the rows of the second key are within
// the limit, except for a row that is in delivery.
func runsLeaseBehindLimit(s *storeSuite) {
	free := s.keyed("key 1", keyRow{}, keyRow{due: 2 * later})
	s.keyed("key 2", keyRow{}, held)
	for limit := 2; limit <= 5; limit++ {
		s.sameRuns(fmt.Sprintf("runs by %d rows", limit), s.runs(outbox.RunQuery{Limit: limit}).EventIDs, [][]string{free[:1]})
	}
}

func runsTakeoverPages(s *storeSuite) {
	var want [][]string
	for key := range 5 {
		ids := s.keyed(fmt.Sprint("key ", key), lost, lost, keyRow{}, lost, lost)
		want = append(want, ids[:2])
	}
	for _, limit := range []int{1, 2, 5, 6} {
		runs := s.runs(outbox.RunQuery{Takeovers: true, Limit: limit, Length: 4})
		s.sameRuns(fmt.Sprintf("takeovers by %d", limit), runs.EventIDs, want)
		for _, behind := range runs.Behind {
			s.count("leases behind", len(behind), 2)
		}
	}
}

// runsHeldBack has a free key behind more keys that are held back than a call looks at.
func runsHeldBack(s *storeSuite) {
	const keys = 1201
	envs := s.events(keys + 1)
	for i := range envs {
		envs[i].AggregateType, envs[i].AggregateID = "Order", fmt.Sprintf("%05d", i)
	}
	s.insertFor("node-1/1", envs[:keys]...)
	s.insert(envs[keys])
	s.sameRuns("runs", s.runs(outbox.RunQuery{Limit: 10}).EventIDs, [][]string{{envs[keys].EventID}})
}
