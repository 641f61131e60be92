package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var markTests = []storeTest{
	{"EachKindFromEachStatus", markEveryKind},
	{"AttemptsAreSetWhenTheMarkHasThem", markAttempts},
	{"BatchKeepsEachRowsOwnValues", markBatch},
	{"LongestErrorIsKeptWhole", markLongError},
	{"UnknownEventsAreLeftAlone", markUnknown},
	{"NoMarksIsNoWork", markNothing},
}

// touches lists the statuses of the rows that each outcome may change.
var touches = map[outbox.Outcome][]outbox.Status{
	outbox.OutcomeDone:     {outbox.StatusNew, outbox.StatusRetry, outbox.StatusDead},
	outbox.OutcomeDelete:   {outbox.StatusNew, outbox.StatusRetry, outbox.StatusDead},
	outbox.OutcomeRetry:    {outbox.StatusNew, outbox.StatusRetry},
	outbox.OutcomeDead:     {outbox.StatusNew, outbox.StatusRetry},
	outbox.OutcomeDeferred: {outbox.StatusNew, outbox.StatusRetry},
	outbox.OutcomeReleased: {outbox.StatusNew, outbox.StatusRetry},
}

func markEveryKind(s *storeSuite) {
	for _, kind := range allOutcomes {
		for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry, outbox.StatusDone, outbox.StatusDead} {
			if kind == outbox.OutcomeReleased && status.Terminal() {
				continue // such a row has no lease to release
			}
			s.markOne(kind, status, "", "")
			if !status.Terminal() {
				s.markOne(kind, status, "node-1/1", "node-1/1")
				s.markOne(kind, status, "node-1/1", "") // a mark without a lease is not fenced
			}
		}
	}
}

// markOne marks a row of a status, under the leases that are given.
func (s *storeSuite) markOne(kind outbox.Outcome, status outbox.Status, rowLease, markLease string) {
	s.t.Helper()
	what := fmt.Sprintf("%s under lease %q of a %s row under lease %q", kind, markLease, status, rowLease)
	env, was := s.insertedAs(status, rowLease)
	mark := markFor(env.EventID)
	before := s.now()
	s.mark(kind, markLease, mark)
	if !slices.Contains(touches[kind], status) {
		s.sameRow(what, env.EventID, was)
		return
	}
	row, ok := s.Row(s.t, env.EventID)
	if kind == outbox.OutcomeDelete {
		if ok {
			s.t.Fatalf("%s: the row is still there", what)
		}
		return
	}
	if !ok {
		s.t.Fatalf("%s: the row is gone", what)
	}
	want := was
	want.LockedBy, want.LockedAt = "", time.Time{}
	switch kind {
	case outbox.OutcomeDone:
		want.Status = outbox.StatusDone
		want.LastError = row.LastError // free to keep or clear
	case outbox.OutcomeRetry:
		want.Status, want.Attempts = outbox.StatusRetry, mark.Attempts
		want.AvailableAt, want.LastError = mark.AvailableAt, mark.Error
	case outbox.OutcomeDead:
		want.Status, want.Attempts, want.LastError = outbox.StatusDead, mark.Attempts, mark.Error
	case outbox.OutcomeDeferred:
		want.Status, want.AvailableAt = outbox.StatusNew, mark.AvailableAt
		want.LastError = row.LastError // free to keep or clear
	case outbox.OutcomeReleased, outbox.OutcomeDelete:
	}
	if kind == outbox.OutcomeDone || kind == outbox.OutcomeDead {
		s.duringCall(what+": done_at", row.DoneAt, before)
		want.DoneAt = row.DoneAt
	}
	if !sameRow(row, want) {
		s.t.Fatalf("%s:\n got %+v\nwant %+v", what, row, want)
	}
}

func markAttempts(s *storeSuite) {
	for _, kind := range []outbox.Outcome{outbox.OutcomeRetry, outbox.OutcomeDead} {
		for name, counts := range map[string][2]int{"one": {5, 0}, "all": {5, 5}, "none": {0, 0}, "each its own": {5, 6}} {
			first, _ := s.insertedAs(outbox.StatusRetry, "")
			second, was := s.insertedAs(outbox.StatusRetry, "")
			s.mark(kind, "",
				outbox.Mark{EventID: first.EventID, Error: "the last attempt", AvailableAt: suiteTime, Attempts: counts[0]},
				outbox.Mark{EventID: second.EventID, Error: "unroutable", AvailableAt: suiteTime, Attempts: counts[1]})
			for i, id := range []string{first.EventID, second.EventID} {
				want := counts[i]
				if want == 0 {
					want = was.Attempts
				}
				s.count(kind.String()+", "+name+": attempts", s.row(id).Attempts, want)
			}
		}
	}
}

func markBatch(s *storeSuite) {
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
}

func markLongError(s *storeSuite) {
	long := strings.Repeat("🎉", outbox.MaxErrorLength)
	for _, kind := range []outbox.Outcome{outbox.OutcomeRetry, outbox.OutcomeDead} {
		env := s.inserted()
		s.mark(kind, "", outbox.Mark{EventID: env.EventID, Error: long, AvailableAt: suiteTime})
		if got := s.row(env.EventID).LastError; got != long {
			s.t.Fatalf("%s: %d bytes of the error are stored, want %d", kind, len(got), len(long))
		}
	}
}

// A row that does not exist is left alone; marks without a lease are not reported.
func markUnknown(s *storeSuite) {
	for _, outcome := range allOutcomes {
		env, _ := s.insertedAs(outbox.StatusNew, "node-1/1")
		s.mark(outcome, "", markFor("no such event"), markFor(env.EventID))
		if row, ok := s.Row(s.t, env.EventID); ok && row.LockedBy != "" {
			s.t.Fatalf("%s: the event beside it is not marked: %+v", outcome, row)
		}
		env, _ = s.insertedAs(outbox.StatusNew, "node-1/1")
		s.leaves(outcome, "node-1/1", []outbox.Mark{markFor("no such event")}, map[string]outbox.RowState{"no such event": {}})
		if outcome != outbox.OutcomeDelete { // of two rows that are not there, either may be the one that it deleted
			s.leaves(outcome, "node-1/1", []outbox.Mark{markFor("no such event"), markFor(env.EventID)}, map[string]outbox.RowState{"no such event": {}})
		}
	}
}

func markNothing(s *storeSuite) {
	env, row := s.insertedAs(outbox.StatusRetry, "node-1/1")
	for _, outcome := range allOutcomes {
		s.mark(outcome, "")
	}
	s.sameRow("row", env.EventID, row)
}
