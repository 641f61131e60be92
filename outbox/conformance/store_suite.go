package conformance

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// event is a sealed envelope that occurred, and is due, the given time after
// suiteTime.
func (s *storeSuite) event(after time.Duration) outbox.Envelope {
	s.seq++
	at := suiteTime.Add(after)
	return outbox.Envelope{
		EventID:       fmt.Sprintf("01SUITE%08d", s.seq),
		EventType:     "Happened",
		AggregateType: outbox.Global,
		Payload:       outbox.RawJSON(fmt.Sprintf(`{"n":%d}`, s.seq)),
		OccurredAt:    at,
		AvailableAt:   at,
	}
}

// events are n events a millisecond apart.
func (s *storeSuite) events(n int) []outbox.Envelope {
	envs := make([]outbox.Envelope, n)
	for i := range envs {
		envs[i] = s.event(time.Duration(i) * time.Millisecond)
	}
	return envs
}

// insert adds events in a separate transaction.
func (s *storeSuite) insert(envs ...outbox.Envelope) { s.t.Helper(); s.insertFor("", envs...) }

// insertFor adds events that are under a lease.
func (s *storeSuite) insertFor(lease string, envs ...outbox.Envelope) {
	s.t.Helper()
	tx, commit, rollback := s.Begin(s.t)
	if err := s.Store.Insert(s.ctx, tx, envs, lease, suiteTime.Add(later)); err != nil {
		_ = rollback()
		s.t.Fatalf("Insert of %d events: %v", len(envs), err)
	}
	s.ok("committing the insert", commit())
}

// inserted adds an event and returns it.
func (s *storeSuite) inserted() outbox.Envelope {
	s.t.Helper()
	env := s.event(0)
	s.insert(env)
	return env
}

// stored is an event with the row that a test gave it.
type stored struct {
	outbox.Envelope
	row RawRow
}

// insertedAs adds an event and gives the row the status, all columns that the status implies, and
// the lease unless it is empty.
func (s *storeSuite) insertedAs(status outbox.Status, lease string) stored {
	s.t.Helper()
	return s.leasedFor(0, status, lease)
}

// leasedFor is insertedAs with a lease that began some time ago.
func (s *storeSuite) leasedFor(age time.Duration, status outbox.Status, lease string) stored {
	s.t.Helper()
	env := s.inserted()
	row := RawRow{Status: status, CreatedAt: env.OccurredAt, AvailableAt: env.AvailableAt}
	switch status {
	case outbox.StatusNew:
	case outbox.StatusRetry:
		row.Attempts, row.LastError = 3, "the third failure"
	case outbox.StatusDone:
		row.DoneAt = suiteTime.Add(time.Hour)
	case outbox.StatusDead:
		row.Attempts, row.LastError, row.DoneAt = 10, "the last failure", suiteTime.Add(time.Hour)
	}
	if lease != "" {
		row.LockedBy, row.LockedAt = lease, s.now().Add(-age)
	}
	s.SetRow(s.t, env.EventID, row)
	return stored{env, row}
}

// unchanged fails the test unless rows are as they were inserted.
func (s *storeSuite) unchanged(what string, rows ...stored) {
	s.t.Helper()
	for _, r := range rows {
		s.sameRow(what, r.EventID, r.row)
	}
}

func (s *storeSuite) row(id string) RawRow {
	s.t.Helper()
	row, ok := s.Row(s.t, id)
	if !ok {
		s.t.Fatalf("event %s has no row", id)
	}
	return row
}

// edit changes a row without the store.
func (s *storeSuite) edit(id string, change func(row *RawRow)) {
	s.t.Helper()
	row := s.row(id)
	change(&row)
	s.SetRow(s.t, id, row)
}

// now is the database's clock.
func (s *storeSuite) now() time.Time {
	s.t.Helper()
	now, err := s.Store.Now(s.ctx, s.DB)
	s.ok("Now", err)
	return now
}

func (s *storeSuite) poll(q outbox.PollQuery) outbox.Batch {
	s.t.Helper()
	if q.LeaseDuration == 0 {
		q.LeaseDuration = time.Minute
	}
	b, err := s.Store.Poll(s.ctx, s.DB, q)
	s.ok("Poll", err)
	return b
}

// pollAt polls up to 1,000 rows that are due the given time after suiteTime.
func (s *storeSuite) pollAt(after time.Duration) outbox.Batch {
	s.t.Helper()
	return s.poll(outbox.PollQuery{Now: suiteTime.Add(after), Limit: 1000})
}

// later is after the due time of every event that the suite does not delay.
const later = time.Hour

// claimFor claims under a lease.
func (s *storeSuite) claimFor(lease string, limit int) outbox.Batch {
	s.t.Helper()
	return s.claim(outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: limit, Lease: lease, LeaseDuration: time.Minute})
}

func (s *storeSuite) claim(q outbox.ClaimQuery) outbox.Batch {
	s.t.Helper()
	b, err := s.Store.Claim(s.ctx, s.DB, q)
	s.ok("Claim", err)
	return b
}

// mark stores an outcome for rows under a lease, or for any rows if the lease is empty, and fails
// the test when a row is left alone.
func (s *storeSuite) mark(outcome outbox.Outcome, lease string, marks ...outbox.Mark) {
	s.t.Helper()
	marks = slices.Clone(marks)
	for i := range marks {
		marks[i].Lease = lease
	}
	s.leaves(outcome, marks, nil)
}

// leaves stores an outcome and compares the rows that are left alone.
func (s *storeSuite) leaves(outcome outbox.Outcome, marks []outbox.Mark, want map[string]outbox.RowState) {
	s.t.Helper()
	left, err := s.Store.Mark(s.ctx, s.DB, outcome, marks)
	s.ok("Mark "+outcome.String(), err)
	if !maps.Equal(left, want) || len(want) == 0 && left != nil {
		s.t.Fatalf("%s leaves alone %+v, want %+v", outcome, left, want)
	}
}

// stateOf is the state that a mark reports for a row that it leaves alone.
func stateOf(row RawRow) outbox.RowState {
	return outbox.RowState{Exists: true, Status: row.Status, Lease: row.LockedBy, DueAt: row.AvailableAt}
}

func (s *storeSuite) queryDead(q outbox.DeadRowsQuery) []outbox.DeadLetter {
	s.t.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	letters, err := s.Store.QueryDead(s.ctx, s.DB, q)
	s.ok("QueryDead", err)
	return letters
}

// count fails the test unless the numbers are equal.
func (s *storeSuite) count(what string, got, want int) {
	s.t.Helper()
	if got != want {
		s.t.Fatalf("%s: got %d, want %d", what, got, want)
	}
}

// sameIDs compares ids in order.
func (s *storeSuite) sameIDs(what string, got, want []string) {
	s.t.Helper()
	if !slices.Equal(got, want) {
		s.t.Fatalf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// sameRow compares a row with the expected row.
func (s *storeSuite) sameRow(what, id string, want RawRow) {
	s.t.Helper()
	got := s.row(id)
	if !sameRow(got, want) {
		s.t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func sameRow(r, o RawRow) bool {
	return r.Status == o.Status && r.Attempts == o.Attempts &&
		r.AvailableAt.Equal(o.AvailableAt) && r.CreatedAt.Equal(o.CreatedAt) &&
		r.DoneAt.Equal(o.DoneAt) && r.LockedAt.Equal(o.LockedAt) &&
		r.LastError == o.LastError && r.LockedBy == o.LockedBy
}

// clockSlack is how much coarser than Now a database time in a statement may be:
// SQLite's own clock has milliseconds.
const clockSlack = 5 * time.Millisecond

// duringCall fails the test unless a time set by the database lies between Now
// before a call and Now after it.
func (s *storeSuite) duringCall(what string, at, before time.Time) {
	s.t.Helper()
	after := s.now()
	if at.Before(before.Add(-clockSlack)) || at.After(after.Add(clockSlack)) {
		s.t.Fatalf("%s: %v is not between %v and %v on the database's clock", what, at, before, after)
	}
}

// leasedRow fails the test unless a row is under a lease that began during a call, and is otherwise
// equal to want.
func (s *storeSuite) leasedRow(id, lease string, before time.Time, want RawRow) {
	s.t.Helper()
	got := s.row(id)
	s.duringCall("start of the lease", got.LockedAt, before)
	want.LockedBy, want.LockedAt = lease, got.LockedAt
	if !sameRow(got, want) {
		s.t.Fatalf("leased row:\n got %+v\nwant %+v", got, want)
	}
}

func idsOf(envs []outbox.Envelope) []string {
	ids := make([]string, len(envs))
	for i := range envs {
		ids[i] = envs[i].EventID
	}
	return ids
}

func deadIDs(letters []outbox.DeadLetter) []string {
	ids := make([]string, len(letters))
	for i := range letters {
		ids[i] = letters[i].EventID
	}
	return ids
}

func marksOf(envs []outbox.Envelope) []outbox.Mark {
	marks := make([]outbox.Mark, len(envs))
	for i := range envs {
		marks[i] = outbox.Mark{EventID: envs[i].EventID}
	}
	return marks
}
