package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var onceTests = []storeTest{
	{"RowsAreAsThoseOfInsert", func(s *storeSuite) {
		envs := s.events(3)
		envs[2].AvailableAt = suiteTime.Add(later)
		before := s.now()
		tx, commit, _ := s.Begin(s.t)
		ids, err := s.Store.InsertOnce(s.ctx, tx, envs, "node-1/1", suiteTime.Add(time.Minute))
		s.ok("InsertOnce", err)
		s.sameIDs("ids", ids, idsOf(envs))
		s.ok("commit", commit())
		for _, env := range envs[:2] {
			s.leasedRow(env.EventID, "node-1/1", before, RawRow{CreatedAt: env.OccurredAt, AvailableAt: env.AvailableAt})
		}
		s.sameRow("row of the delayed event", envs[2].EventID, RawRow{CreatedAt: envs[2].OccurredAt, AvailableAt: envs[2].AvailableAt})
	}},
	{"ThousandsOfEvents", func(s *storeSuite) {
		envs := s.events(2500)
		s.onceIn(envs...)
		b := s.poll(outbox.PollQuery{Now: suiteTime.Add(later), Limit: 5000})
		s.sameIDs("ids", idsOf(b.Envelopes), idsOf(envs))
		s.refuses(envs[1800].EventID, append(s.events(2000), envs[1800])...)
	}},
	{"ADuplicateIDLeavesTheTransaction", func(s *storeSuite) {
		for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry, outbox.StatusDone, outbox.StatusDead} {
			there := s.insertedAs(status, "")
			s.refuses(there.EventID, there.Envelope)
			s.refuses(there.EventID, s.event(0), there.Envelope, s.event(0))
			s.unchanged("the row that was there", there)
		}
	}},
	{"TheErrorNamesTheIDsInOrder", func(s *storeSuite) {
		one, two := s.insertedAs(outbox.StatusDone, ""), s.insertedAs(outbox.StatusNew, "")
		tx, commit, _ := s.Begin(s.t)
		_, err := s.Store.InsertOnce(s.ctx, tx, []outbox.Envelope{s.event(0), two.Envelope, s.event(0), one.Envelope}, "", time.Time{})
		var there *outbox.DuplicateEventError
		if !errors.As(err, &there) || there.EventID != two.EventID {
			s.t.Fatalf("InsertOnce of 4 events, of which %s and %s are there: %v", two.EventID, one.EventID, err)
		}
		if there.EventIDs != nil {
			s.sameIDs("EventIDs", there.EventIDs, []string{two.EventID, one.EventID})
		}
		s.ok("commit", commit())
	}},
	{"ADuplicateIDOfTheSameTransaction", func(s *storeSuite) {
		env, other := s.event(0), s.event(0)
		tx, commit, _ := s.Begin(s.t)
		s.once(tx, env)
		s.duplicate(tx, env.EventID, env)
		s.once(tx, other)
		s.ok("commit", commit())
		s.sameIDs("ids", idsOf(s.pollAt(later).Envelopes), idsOf([]outbox.Envelope{env, other}))
	}},
	{"ADuplicateIDWaitsForTheTransactionBeforeIt", func(s *storeSuite) {
		s.needRowLocks()
		for _, commits := range []bool{true, false} {
			first, other := s.event(0), s.event(0)
			s.after(commits, first, func(tx outbox.Execer) {
				if commits {
					s.duplicate(tx, first.EventID, first)
				} else {
					s.once(tx, first)
				}
				s.once(tx, other)
			})
			s.count("events", s.pollAt(later).Len(), 2)
			s.mark(outbox.OutcomeDelete, "", marksOf([]outbox.Envelope{first, other})...)
		}
	}},
	{"AStoreWithoutKeysRefusesAKey", func(s *storeSuite) {
		env := s.unique("k")
		tx, commit, _ := s.Begin(s.t)
		if _, err := s.Store.InsertOnce(s.ctx, tx, []outbox.Envelope{s.event(0), env}, "", time.Time{}); err != nil {
			var problem *outbox.FieldError
			if !errors.As(err, &problem) || problem.Field != "Envelope.UniqueKey" {
				s.t.Fatalf("InsertOnce of an event with a unique key: %v", err)
			}
			s.once(tx, s.event(0))
		}
		s.ok("commit", commit())
	}},
}

var keyTests = []storeTest{
	{"TheSecondOfAKeyIsSkipped", func(s *storeSuite) {
		for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry} {
			for _, lease := range []string{"", "node-1/1"} {
				env := s.unique("k")
				s.onceIn(env)
				s.edit(env.EventID, func(row *RawRow) {
					if row.Status = status; lease != "" {
						row.LockedBy, row.LockedAt = lease, s.now()
					}
				})
				before := s.row(env.EventID)
				s.sameIDs("ids", s.onceIn(s.unique("k")), []string{env.EventID})
				s.sameRow("the first row", env.EventID, before)
				s.count("events that wait", int(s.waiting()), 1)
				s.mark(outbox.OutcomeDelete, lease, outbox.Mark{EventID: env.EventID})
			}
		}
	}},
	{"AKeyIsFreeWhenItsEventIsNotPending", func(s *storeSuite) {
		for _, outcome := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeDelete, outbox.OutcomeDead} {
			first, second := s.unique("k"), s.unique("k")
			s.onceIn(first)
			s.mark(outcome, "", outbox.Mark{EventID: first.EventID, Attempts: 1, Error: "it failed"})
			s.sameIDs("ids", s.onceIn(second), []string{second.EventID})
			s.mark(outbox.OutcomeDelete, "", outbox.Mark{EventID: second.EventID})
		}
	}},
	{"OutcomesThatLeaveAnEventPendingKeepItsKey", func(s *storeSuite) {
		first := s.unique("k")
		s.onceIn(first)
		for _, outcome := range []outbox.Outcome{outbox.OutcomeRetry, outbox.OutcomeDeferred, outbox.OutcomeReleased, outbox.OutcomeRetry} {
			s.mark(outcome, "", outbox.Mark{EventID: first.EventID, Attempts: 1, Error: "it failed", AvailableAt: first.AvailableAt})
			s.sameIDs("ids", s.onceIn(s.unique("k")), []string{first.EventID})
		}
	}},
	{"ListenerRowsHaveNoKey", func(s *storeSuite) {
		first := s.unique("k")
		s.onceIn(first)
		rows := []outbox.ListenerRow{
			{Envelope: s.event(0), Outcome: outbox.OutcomeRetry, Mark: outbox.Mark{Attempts: 1, Error: "it failed", AvailableAt: suiteTime}},
			{Envelope: s.event(0), Outcome: outbox.OutcomeRetry, Mark: outbox.Mark{Attempts: 1, Error: "it failed", AvailableAt: suiteTime}},
		}
		for i := range rows {
			rows[i].Mark.EventID = rows[i].Envelope.EventID
		}
		left, err := s.Store.Split(s.ctx, s.DB, outbox.OutcomeDone, []outbox.Split{{Mark: outbox.Mark{EventID: first.EventID}, Rows: rows}})
		s.ok("Split", err)
		s.count("events that were not split", len(left), 0)
		second := s.unique("k")
		s.sameIDs("ids", s.onceIn(second), []string{second.EventID})
	}},
	{"EqualKeysInOneCall", func(s *storeSuite) {
		envs := []outbox.Envelope{s.unique("k"), s.event(0), s.unique("k"), s.unique("j")}
		want := []string{envs[0].EventID, envs[1].EventID, envs[0].EventID, envs[3].EventID}
		s.sameIDs("ids", s.onceIn(envs...), want)
		s.count("events", s.pollAt(later).Len(), 3)
	}},
	{"KeysAreOfAKindAndComparedByteByByte", func(s *storeSuite) {
		var envs []outbox.Envelope
		for _, key := range []string{"key", "KEY", "key ", " key", "kéy", "ke\u0301y", strings.Repeat("🎉", outbox.MaxUniqueKeyLength)} {
			envs = append(envs, s.unique(key))
		}
		other, another := s.unique("key"), s.unique("key")
		other.EventType, another.AggregateType = "Other", "Other"
		envs = append(envs, other, another)
		s.sameIDs("ids", s.onceIn(envs...), idsOf(envs))
		var again []outbox.Envelope
		for _, env := range envs {
			env.EventID = s.event(0).EventID
			again = append(again, env)
		}
		s.sameIDs("ids of a second write", s.onceIn(again...), idsOf(envs))
		for _, env := range s.pollAt(later).Envelopes {
			if env.UniqueKey != "" {
				s.t.Errorf("the event %s was read with the key %q", env.EventID, env.UniqueKey)
			}
		}
	}},
	{"ASkippedEventLeavesTheTransaction", func(s *storeSuite) {
		first, other := s.unique("k"), s.event(0)
		tx, commit, _ := s.Begin(s.t)
		s.sameIDs("ids", s.once(tx, first), []string{first.EventID})
		s.sameIDs("ids", s.once(tx, s.unique("k")), []string{first.EventID})
		s.sameIDs("ids", s.once(tx, other), []string{other.EventID})
		s.ok("commit", commit())
		s.sameIDs("events", idsOf(s.pollAt(later).Envelopes), []string{first.EventID, other.EventID})
	}},
	{"ADuplicateIDWithAKey", func(s *storeSuite) {
		first := s.unique("k")
		s.onceIn(first)
		s.refuses(first.EventID, first)
		s.refuses(first.EventID, s.unique("j"), first)
		done := s.insertedAs(outbox.StatusDone, "")
		done.UniqueKey = "j"
		s.refuses(done.EventID, done.Envelope)
		s.count("events", s.pollAt(later).Len(), 1)
	}},
	{"AKeyWaitsForTheTransactionBeforeIt", func(s *storeSuite) {
		s.needRowLocks()
		for _, commits := range []bool{true, false} {
			first, second := s.unique("k"), s.unique("k")
			s.after(commits, first, func(tx outbox.Execer) {
				want := second.EventID
				if commits {
					want = first.EventID
				}
				s.sameIDs("ids", s.once(tx, second), []string{want})
				s.once(tx, s.event(0))
			})
			left := idsOf(s.pollAt(later).Envelopes)
			s.count("events", len(left), 2)
			for _, id := range left {
				s.mark(outbox.OutcomeDelete, "", outbox.Mark{EventID: id})
			}
		}
	}},
	{"TheSameKeysInAnotherOrderDoNotDeadlock", func(s *storeSuite) {
		s.needRowLocks()
		for n := range 10 {
			failed := make(chan error, 2)
			for _, keys := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}} {
				var envs []outbox.Envelope
				for _, key := range keys {
					envs = append(envs, s.unique(fmt.Sprint(key, n)))
				}
				tx, commit, rollback := s.Begin(s.t)
				go func() {
					_, err := s.Store.InsertOnce(s.ctx, tx, envs, "", time.Time{})
					if err == nil {
						err = commit()
					}
					_ = rollback()
					failed <- err
				}()
			}
			s.ok("a transaction", errors.Join(<-failed, <-failed))
		}
		s.count("events", s.pollAt(later).Len(), 30)
	}},
	{"AReplayLeavesALetterDeadWhoseKeyIsTaken", func(s *storeSuite) {
		var letters []outbox.Envelope
		for range 20 { // of one key, one after the other
			letters = append(letters, s.unique("k"), s.event(0))
		}
		for _, env := range letters {
			s.onceIn(env)
			s.mark(outbox.OutcomeDead, "", outbox.Mark{EventID: env.EventID, Attempts: 1, Error: "it failed"})
		}
		pending := s.unique("k")
		s.onceIn(pending)
		s.replayed(20, 20, letters[0].EventID, idsOf(letters)...)
		s.count("dead letters", len(s.queryDead(outbox.DeadRowsQuery{})), 20)
		s.mark(outbox.OutcomeDone, "", outbox.Mark{EventID: pending.EventID})
		s.replayed(0, 0, "", letters[1].EventID)
		s.replayed(1, 1, letters[4].EventID, letters[2].EventID, letters[4].EventID) // one takes the key of the other
	}},
}

// withKeys are tests that a store without unique keys skips.
func withKeys(tests []storeTest) []storeTest {
	needing := make([]storeTest, len(tests))
	for i, test := range tests {
		needing[i] = storeTest{test.name, func(s *storeSuite) {
			tx, _, rollback := s.Begin(s.t)
			_, err := s.Store.InsertOnce(s.ctx, tx, []outbox.Envelope{s.unique("any")}, "", time.Time{})
			s.ok("rollback", rollback())
			if problem := new(outbox.FieldError); errors.As(err, &problem) && problem.Field == "Envelope.UniqueKey" {
				s.t.Skip("the store has no unique keys")
			}
			s.ok("InsertOnce", err)
			test.run(s)
		}}
	}
	return needing
}

// unique is an event with a unique key.
func (s *storeSuite) unique(key string) outbox.Envelope {
	env := s.event(0)
	env.UniqueKey = key
	return env
}

// waiting is the number of pending events.
func (s *storeSuite) waiting() int64 {
	s.t.Helper()
	stats, err := s.Store.Stats(s.ctx, s.DB, suiteTime.Add(later), nil)
	s.ok("Stats", err)
	return stats.Due + stats.Delayed
}

// once writes events in a transaction.
func (s *storeSuite) once(tx outbox.Execer, envs ...outbox.Envelope) []string {
	s.t.Helper()
	ids, err := s.Store.InsertOnce(s.ctx, tx, envs, "", time.Time{})
	s.ok("InsertOnce", err)
	return ids
}

// onceIn writes events in a transaction of their own.
func (s *storeSuite) onceIn(envs ...outbox.Envelope) []string {
	s.t.Helper()
	tx, commit, rollback := s.Begin(s.t)
	ids, err := s.Store.InsertOnce(s.ctx, tx, envs, "", time.Time{})
	if err != nil {
		_ = rollback()
	}
	s.ok("InsertOnce", err)
	s.ok("commit", commit())
	return ids
}

// duplicate writes events, of which one has an id that is there.
func (s *storeSuite) duplicate(tx outbox.Execer, id string, envs ...outbox.Envelope) {
	s.t.Helper()
	_, err := s.Store.InsertOnce(s.ctx, tx, envs, "", time.Time{})
	var there *outbox.DuplicateEventError
	if !errors.As(err, &there) || !errors.Is(err, outbox.ErrDuplicateEvent) || there.EventID != id {
		s.t.Errorf("InsertOnce of %d events, of which %s is there: %v", len(envs), id, err)
		return
	}
	if ids := there.EventIDs; ids != nil {
		s.sameIDs("EventIDs", ids, []string{id})
	}
}

// refuses writes events, of which one has an id that is there, in a transaction that writes others
// before and after, and commits. No event of the write is there.
func (s *storeSuite) refuses(id string, envs ...outbox.Envelope) {
	s.t.Helper()
	before, after := s.event(0), s.event(0)
	tx, commit, _ := s.Begin(s.t)
	s.once(tx, before)
	s.duplicate(tx, id, envs...)
	s.once(tx, after)
	s.ok("commit", commit())
	for _, env := range envs {
		if _, there := s.Row(s.t, env.EventID); there != (env.EventID == id) {
			s.t.Errorf("the event %s of a refused write is there: %v", env.EventID, there)
		}
		if len(envs) > 10 {
			break
		}
	}
	for _, env := range []outbox.Envelope{before, after} {
		s.row(env.EventID)
		s.mark(outbox.OutcomeDelete, "", outbox.Mark{EventID: env.EventID})
	}
}

// replayed replays dead letters. taken of them stay dead, first first.
func (s *storeSuite) replayed(want, taken int, first string, ids ...string) {
	s.t.Helper()
	n, err := s.Store.ReplayDead(s.ctx, s.DB, ids, suiteTime, outbox.StatusNew)
	s.count("replayed letters", n, want)
	problem := new(outbox.KeyTakenError)
	if errors.As(err, &problem); taken == 0 && err != nil || problem.Letters != taken || problem.EventID != first {
		s.t.Fatalf("ReplayDead of %d letters: %v; want %d letters, %s first", len(ids), err, taken, first)
	}
}

func (s *storeSuite) needRowLocks() {
	if s.LockRow == nil {
		s.t.Skip("a transaction does not wait for another transaction's rows")
	}
}

// after runs fn in a transaction, while another transaction, which has written the event first, ends.
func (s *storeSuite) after(commits bool, first outbox.Envelope, fn func(tx outbox.Execer)) {
	s.t.Helper()
	tx, commit, rollback := s.Begin(s.t)
	s.once(tx, first)
	second, commitSecond, _ := s.Begin(s.t)
	ended := make(chan error, 1)
	go func() {
		end := rollback
		if commits {
			end = commit
		}
		ended <- end()
	}()
	fn(second)
	s.ok("the end of the first transaction", <-ended)
	s.ok("commit", commitSecond())
}
