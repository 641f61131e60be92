package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var markTests = []storeTest{
	{"EveryOutcomeFromEachStatusUnderEachLease", func(s *storeSuite) {
		for _, outcome := range allOutcomes {
			for _, m := range s.everyMark() {
				s.marks(outcome, m)
			}
			// Rows without a lease may look as if the outcome had just been stored, so they are not
			// in the same batch as rows that change.
			free := []marked{{mark: markUnder("node-1/1", "no such event")}}
			rest := []marked{{mark: markFor("no such event")}}
			if outcome == outbox.OutcomeDelete { // afterwards no row is left
				s.marks(outcome, rest...)
				rest = nil
			}
			for _, m := range s.everyMark() {
				if m.row.LockedBy == "" && m.mark.Lease != "" || !m.mark.DueAt.IsZero() && !m.applies(outcome) {
					free = append(free, m)
				} else {
					rest = append(rest, m)
				}
			}
			s.marks(outcome, free...)
			s.marks(outcome, rest...)
		}
	}},
	{"AttemptsAreThoseOfTheMarkUnlessTheRowHasMore", func(s *storeSuite) {
		for _, kind := range []outbox.Outcome{outbox.OutcomeRetry, outbox.OutcomeDead} {
			for name, counts := range map[string][2]int{"one": {5, 0}, "all": {5, 5}, "none": {0, 0}, "each its own": {5, 6}, "fewer": {2, 2}, "fewer in one": {2, 5}} {
				first, second := s.insertedAs(outbox.StatusRetry, ""), s.insertedAs(outbox.StatusRetry, "")
				s.mark(kind, "",
					outbox.Mark{EventID: first.EventID, Error: "the last attempt", AvailableAt: suiteTime, Attempts: counts[0]},
					outbox.Mark{EventID: second.EventID, Error: "unroutable", AvailableAt: suiteTime, Attempts: counts[1]})
				for i, id := range []string{first.EventID, second.EventID} {
					s.count(kind.String()+", "+name+": attempts", s.row(id).Attempts, max(counts[i], second.row.Attempts))
				}
			}
		}
	}},
	{"BatchKeepsEachRowsOwnValues", func(s *storeSuite) {
		const rows = 700
		envs := s.events(rows)
		s.insert(envs...)
		marks := marksOf(envs)
		for i := range marks {
			marks[i].Error = fmt.Sprintf("failure %d: it's \"quoted\" \\ ? $1 %%s 🎉", i)
			marks[i].AvailableAt, marks[i].Attempts = suiteTime.Add(time.Duration(i)*time.Microsecond), 1+i%3
		}
		slices.Reverse(marks) // not in the order of the rows
		s.mark(outbox.OutcomeRetry, "", marks...)
		for _, mark := range []outbox.Mark{marks[0], marks[1], marks[rows/2], marks[rows-1]} {
			row := s.row(mark.EventID)
			if row.Status != outbox.StatusRetry || row.Attempts != mark.Attempts || row.LastError != mark.Error || !row.AvailableAt.Equal(mark.AvailableAt) {
				s.t.Fatalf("row %+v does not have the values of %+v", row, mark)
			}
		}
		attempts := map[string]int{}
		for i := range marks {
			attempts[marks[i].EventID] = marks[i].Attempts
			marks[i].Error, marks[i].Attempts = "dead "+marks[i].EventID, 4*(i%2)
			attempts[marks[i].EventID] = max(attempts[marks[i].EventID], marks[i].Attempts)
		}
		s.mark(outbox.OutcomeDead, "", marks...)
		for _, mark := range marks[:4] {
			row := s.row(mark.EventID)
			if row.Status != outbox.StatusDead || row.Attempts != attempts[mark.EventID] || row.LastError != mark.Error {
				s.t.Fatalf("row %+v does not have the values of %+v", row, mark)
			}
		}
	}},
	{"LongestErrorIsKeptWhole", func(s *storeSuite) {
		long := strings.Repeat("🎉", outbox.MaxErrorLength)
		for _, kind := range []outbox.Outcome{outbox.OutcomeRetry, outbox.OutcomeDead} {
			env := s.inserted()
			s.mark(kind, "", outbox.Mark{EventID: env.EventID, Error: long, AvailableAt: suiteTime})
			if got := s.row(env.EventID).LastError; got != long {
				s.t.Fatalf("%s: %d bytes of the error are stored, want %d", kind, len(got), len(long))
			}
		}
	}},
	{"NoMarksIsNoWork", func(s *storeSuite) {
		row := s.insertedAs(outbox.StatusRetry, "node-1/1")
		for _, outcome := range allOutcomes {
			s.mark(outcome, "")
		}
		s.unchanged("row", row)
	}},
}

// allOutcomes are the kinds of outcomes.
var allOutcomes = []outbox.Outcome{
	outbox.OutcomeDone, outbox.OutcomeDelete, outbox.OutcomeRetry, outbox.OutcomeDead, outbox.OutcomeDeferred, outbox.OutcomeReleased,
}

// markFor is a mark with every field that an outcome may use.
func markFor(id string) outbox.Mark {
	return outbox.Mark{EventID: id, AvailableAt: suiteTime.Add(24 * time.Hour), Error: "it failed", Attempts: 7}
}

// markUnder is markFor with a lease.
func markUnder(lease, id string) outbox.Mark {
	mark := markFor(id)
	mark.Lease = lease
	return mark
}

// markDue is markFor with DueAt.
func markDue(due time.Time, id string) outbox.Mark {
	mark := markFor(id)
	mark.DueAt = due
	return mark
}

// marked is a row and the mark that it gets.
type marked struct {
	stored
	mark outbox.Mark
}

// applies reports whether an outcome changes the row. A mark without a lease and without DueAt is
// not fenced.
func (m marked) applies(outcome outbox.Outcome) bool {
	if m.mark.Lease != "" && m.mark.Lease != m.row.LockedBy || m.row.Status == outbox.StatusDone {
		return false
	}
	if !m.mark.DueAt.IsZero() && (m.row.LockedBy != "" || !m.row.AvailableAt.Equal(m.mark.DueAt)) {
		return false
	}
	return !m.row.Status.Terminal() || outcome == outbox.OutcomeDone || outcome == outbox.OutcomeDelete
}

// everyMark adds rows of each status under each lease, with a mark under each lease, and marks with
// the DueAt of the row and with others, so that a statement with a list of ids and a list of leases,
// or of times, would change too many.
func (s *storeSuite) everyMark() (all []marked) {
	s.t.Helper()
	leases := []string{"", "node-1/1", "node-1/2"}
	for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry, outbox.StatusDone, outbox.StatusDead} {
		for _, rowLease := range leases {
			if status.Terminal() && rowLease != "" {
				continue // the outcome ended the lease
			}
			for _, lease := range leases {
				r := s.insertedAs(status, rowLease)
				all = append(all, marked{r, markUnder(lease, r.EventID)})
			}
			for _, late := range []time.Duration{0, time.Microsecond, -time.Hour} {
				r := s.insertedAs(status, rowLease)
				all = append(all, marked{r, markDue(r.AvailableAt.Add(late), r.EventID)})
			}
		}
	}
	return all
}

// marks stores an outcome for rows, and checks each row and the reported states.
func (s *storeSuite) marks(outcome outbox.Outcome, batch ...marked) {
	s.t.Helper()
	var marks []outbox.Mark
	left := map[string]outbox.RowState{}
	for _, m := range batch {
		marks = append(marks, m.mark)
		switch {
		case m.EventID == "":
			left[m.mark.EventID] = outbox.RowState{}
		case (m.mark.Lease != "" || !m.mark.DueAt.IsZero()) && !m.applies(outcome):
			left[m.EventID] = stateOf(m.row)
		}
	}
	before := s.now()
	s.leaves(outcome, marks, left)
	for _, m := range batch {
		if m.EventID != "" {
			s.wasMarked(outcome, m, before)
		}
	}
}

// wasMarked fails the test unless a row is as an outcome leaves it.
func (s *storeSuite) wasMarked(outcome outbox.Outcome, m marked, before time.Time) {
	s.t.Helper()
	what := fmt.Sprintf("%s under lease %q, with DueAt %v, of a %s row under lease %q, due at %v",
		outcome, m.mark.Lease, m.mark.DueAt, m.row.Status, m.row.LockedBy, m.row.AvailableAt)
	if !m.applies(outcome) {
		s.unchanged(what, m.stored)
		return
	}
	if outcome == outbox.OutcomeDelete {
		if _, ok := s.Row(s.t, m.EventID); ok {
			s.t.Fatalf("%s: the row is still there", what)
		}
		return
	}
	row, want := s.row(m.EventID), m.row
	want.LockedBy, want.LockedAt = "", time.Time{}
	switch outcome {
	case outbox.OutcomeDone:
		want.Status = outbox.StatusDone
		want.LastError = row.LastError // free to keep or clear
	case outbox.OutcomeRetry:
		want.Status, want.Attempts = outbox.StatusRetry, m.mark.Attempts
		want.AvailableAt, want.LastError = m.mark.AvailableAt, m.mark.Error
	case outbox.OutcomeDead:
		want.Status, want.Attempts, want.LastError = outbox.StatusDead, m.mark.Attempts, m.mark.Error
	case outbox.OutcomeDeferred:
		want.Status, want.AvailableAt = outbox.StatusNew, m.mark.AvailableAt
		want.LastError = cmp.Or(m.mark.Error, want.LastError)
	case outbox.OutcomeReleased, outbox.OutcomeDelete, outbox.OutcomeSplit:
	}
	if want.Status.Terminal() {
		s.duringCall(what+": done_at", row.DoneAt, before)
		want.DoneAt = row.DoneAt
	}
	if !sameRow(row, want) {
		s.t.Fatalf("%s:\n got %+v\nwant %+v", what, row, want)
	}
}
