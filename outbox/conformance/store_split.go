package conformance

import (
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var splitTests = []storeTest{
	{"RowsAreAddedOnlyWithTheEndOfTheirEvent", splitEach},
	{"RowsHaveTheirOutcomes", splitRows},
	{"SplittingAgainAddsNothing", splitTwice},
	{"RowsThatAreThereAreLeftAlone", splitPresent},
	{"LargeBatchWithLostLeases", splitMany},
	{"OnlyDoneAndDelete", splitWithAnotherOutcome},
	{"NoEventsIsNoWork", splitNothing},
}

// split is the end of an event whose listener gets a row with the outcome.
func (s *storeSuite) split(m outbox.Mark, outcome outbox.Outcome) outbox.Split {
	row := s.event(0)
	return outbox.Split{Mark: m, Rows: []outbox.ListenerRow{{Envelope: row, Outcome: outcome, Mark: markFor(row.EventID)}}}
}

// splits stores splits, and returns the rows that are left alone.
func (s *storeSuite) splits(outcome outbox.Outcome, all ...outbox.Split) map[string]outbox.RowState {
	s.t.Helper()
	left, err := s.Store.Split(s.ctx, s.DB, outcome, all)
	s.ok("Split "+outcome.String(), err)
	if left != nil && len(left) == 0 {
		s.t.Fatal("Split leaves nothing alone, and the map is not nil")
	}
	return left
}

func (s *storeSuite) hasRow(what, id string, want bool) {
	s.t.Helper()
	if _, found := s.Row(s.t, id); found != want {
		s.t.Fatalf("%s: there is a row for the listener: %t, want %t", what, found, want)
	}
}

// splitEach splits each event in the same call as other events, some that are changed and some that
// are not.
func splitEach(s *storeSuite) {
	for _, outcome := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeDelete} {
		all := append(s.everyMark(), marked{mark: markUnder("node-1/1", "no such event")}, marked{mark: markFor("none such")})
		var batch []outbox.Split
		for _, m := range all {
			batch = append(batch, s.split(m.mark, outbox.OutcomeRetry))
		}
		before := s.now()
		left := s.splits(outcome, batch...)
		for i, m := range all {
			exists := m.EventID != ""
			applies := exists && m.applies(outcome)
			what := fmt.Sprintf("splitting as %s under lease %q a %s row under lease %q", outcome, m.mark.Lease, m.row.Status, m.row.LockedBy)
			if exists {
				s.wasMarked(outcome, m, before)
			}
			s.hasRow(what, batch[i].Rows[0].Envelope.EventID, applies)
			want := outbox.RowState{}
			if exists {
				want = stateOf(m.row)
			}
			if state, refused := left[m.mark.EventID]; refused == applies || refused && state != want {
				s.t.Fatalf("%s: left alone: %t as %+v, want %t as %+v", what, refused, state, !applies, want)
			}
		}
	}
}

func splitRows(s *storeSuite) {
	event := s.inserted()
	split := outbox.Split{Mark: outbox.Mark{EventID: event.EventID}}
	outcomes := []outbox.Outcome{outbox.OutcomeRetry, outbox.OutcomeDead, outbox.OutcomeDeferred}
	for _, outcome := range outcomes {
		env := s.event(time.Minute)
		env.AggregateType, env.AggregateID, env.TenantID = "Order", "o-1", "t-1"
		env.Headers = map[string]string{"outbox-listener": "mail \"é🎉\"", "k": "v"}
		split.Rows = append(split.Rows, outbox.ListenerRow{Envelope: env, Outcome: outcome, Mark: markFor(env.EventID)})
	}
	before := s.now()
	if left := s.splits(outbox.OutcomeDone, split); left != nil {
		s.t.Fatalf("Split leaves alone %+v", left)
	}
	for i, outcome := range outcomes {
		env := split.Rows[i].Envelope
		inserted := stored{env, RawRow{CreatedAt: env.OccurredAt, AvailableAt: env.AvailableAt}}
		s.wasMarked(outcome, marked{inserted, split.Rows[i].Mark}, before)
	}
	letter, err := s.Store.GetDead(s.ctx, s.DB, split.Rows[1].Envelope.EventID)
	s.ok("GetDead", err)
	s.sameEnvelope("dead row", letter.Envelope, split.Rows[1].Envelope, 7)
	got := s.pollAt(48 * time.Hour).Envelopes
	s.sameIDs("rows that are due", idsOf(got), []string{split.Rows[0].Envelope.EventID, split.Rows[2].Envelope.EventID})
	due := split.Rows[0].Envelope
	due.AvailableAt = split.Rows[0].Mark.AvailableAt
	s.sameEnvelope("row to be tried again", got[0], due, 7)
}

func splitTwice(s *storeSuite) {
	for _, outcome := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeDelete} {
		for _, lease := range []string{"", "node-1/1"} {
			m := s.insertedAs(outbox.StatusNew, lease)
			split := s.split(markUnder(lease, m.EventID), outbox.OutcomeRetry)
			id := split.Rows[0].Envelope.EventID
			if left := s.splits(outcome, split); left != nil {
				s.t.Fatalf("the first Split leaves alone %+v", left)
			}
			s.mark(outbox.OutcomeDelete, "", markFor(id)) // the listener was quick
			if left := s.splits(outcome, split); len(left) != 1 {
				s.t.Fatalf("the second Split leaves alone %+v", left)
			}
			s.hasRow("splitting twice", id, false)
		}
	}
}

func splitPresent(s *storeSuite) {
	present := s.insertedAs(outbox.StatusRetry, "node-2/1")
	first, second := s.split(markFor(s.inserted().EventID), outbox.OutcomeDead), s.split(markFor(s.inserted().EventID), outbox.OutcomeDead)
	absent := first.Rows[0]
	first.Rows = append(first.Rows, outbox.ListenerRow{Envelope: present.Envelope, Outcome: outbox.OutcomeDead, Mark: markFor(present.EventID)})
	if left := s.splits(outbox.OutcomeDone, first, second); left != nil {
		s.t.Fatalf("Split leaves alone %+v", left)
	}
	s.unchanged("row that was there", present)
	s.hasRow("beside a row that was there", absent.Envelope.EventID, true)
	s.hasRow("another event's", second.Rows[0].Envelope.EventID, true)
}

func splitMany(s *storeSuite) {
	const n = 700
	envs := s.events(n)
	tx, commit, _ := s.Begin(s.t)
	all := make([]outbox.Split, n)
	for i, env := range envs {
		lease := fmt.Sprintf("node-1/%d", i)
		s.ok("Insert", s.Store.Insert(s.ctx, tx, []outbox.Envelope{env}, lease, suiteTime.Add(later)))
		if i%100 == 99 {
			lease = "node-1/lost"
		}
		all[n-1-i] = s.split(markUnder(lease, env.EventID), []outbox.Outcome{outbox.OutcomeRetry, outbox.OutcomeDead, outbox.OutcomeDeferred}[i%3])
	}
	s.ok("commit", commit())
	left := s.splits(outbox.OutcomeDone, all...)
	s.count("events left alone", len(left), n/100)
	for i := range all {
		_, lost := left[all[i].EventID]
		s.hasRow("event "+all[i].EventID, all[i].Rows[0].Envelope.EventID, !lost)
	}
}

func splitWithAnotherOutcome(s *storeSuite) {
	row := s.insertedAs(outbox.StatusNew, "")
	split := s.split(markFor(row.EventID), outbox.OutcomeRetry)
	if _, err := s.Store.Split(s.ctx, s.DB, outbox.OutcomeRetry, []outbox.Split{split}); err == nil {
		s.t.Fatal("an event was split with the outcome retry")
	}
	s.unchanged("event", row)
	s.hasRow("refused", split.Rows[0].Envelope.EventID, false)
}

func splitNothing(s *storeSuite) {
	row := s.insertedAs(outbox.StatusRetry, "node-1/1")
	if left := s.splits(outbox.OutcomeDone); left != nil {
		s.t.Fatalf("no events, and Split leaves alone %+v", left)
	}
	s.unchanged("row", row)
}

// sameEnvelope compares a row's envelope with the inserted envelope, apart from the attempts.
func (s *storeSuite) sameEnvelope(what string, got, want outbox.Envelope, attempts int) {
	s.t.Helper()
	want.Attempts = attempts
	if diffs := diffEnvelopes(got, want); len(diffs) > 0 {
		s.t.Fatalf("%s: %v", what, diffs)
	}
}
