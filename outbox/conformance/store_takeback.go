package conformance

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var takeBackTests = []storeTest{
	{"OnlyWhatWaits", func(s *storeSuite) {
		for name, change := range map[string]outbox.Change{
			"cancel": {Cancel: true}, "reschedule": {AvailableAt: suiteTime.Add(3 * time.Hour)}, "replace": {Content: &outbox.Envelope{Payload: outbox.RawJSON(`{"new":true}`)}},
		} {
			waiting := []outbox.Envelope{s.postponed(time.Minute), s.postponed(2 * later)}
			s.edit(waiting[0].EventID, func(row *RawRow) { row.Status, row.Attempts = outbox.StatusRetry, 2 })
			atOnce, leased, expired := s.insertedAs(outbox.StatusRetry, ""), s.postponed(time.Minute), s.postponed(time.Minute)
			for id, age := range map[string]time.Duration{leased.EventID: 0, expired.EventID: time.Hour} {
				s.edit(id, func(row *RawRow) { row.LockedBy, row.LockedAt = "node-1/1", s.now().Add(-age) })
			}
			ids := []string{"never written", atOnce.EventID, leased.EventID, expired.EventID}
			for _, env := range waiting {
				ids = append(ids, env.EventID)
			}
			var others []stored
			for _, status := range []outbox.Status{outbox.StatusDone, outbox.StatusDead} {
				env := s.insertedAs(status, "")
				s.edit(env.EventID, func(row *RawRow) { row.AvailableAt = row.AvailableAt.Add(time.Minute) })
				env.row = s.row(env.EventID)
				others, ids = append(others, env), append(ids, env.EventID)
			}
			for _, env := range []outbox.Envelope{leased, expired} {
				others = append(others, stored{env, s.row(env.EventID)})
			}
			s.takesBack(name, outbox.Waiting{EventIDs: ids}, change, outbox.TakenBack{Changed: 2, InHand: 3, Dead: 1, Delivered: 2})
			s.unchanged(name, append(others, atOnce)...)
			if change.Cancel {
				for _, env := range waiting {
					s.hasRow("a cancelled event", env.EventID, false)
				}
			}
		}
	}},
	{"RowsOfTheSameTransaction", func(s *storeSuite) {
		old := s.insertedAs(outbox.StatusRetry, "")
		for name, change := range map[string]outbox.Change{
			"cancel": {Cancel: true}, "reschedule": {AvailableAt: suiteTime.Add(time.Hour)}, "replace": {Content: &outbox.Envelope{Payload: outbox.RawJSON(`{"new":true}`)}},
		} {
			due, leased := s.event(0), s.event(0)
			ids := []string{due.EventID, leased.EventID}
			tx, commit, _ := s.Begin(s.t)
			s.ok("Insert", s.Store.Insert(s.ctx, tx, []outbox.Envelope{due}, "", time.Time{}))
			s.ok("Insert", s.Store.Insert(s.ctx, tx, []outbox.Envelope{leased}, "node-1/1", suiteTime.Add(time.Minute)))
			s.takesBackIn(tx, name, outbox.Waiting{EventIDs: ids}, change, outbox.TakenBack{InHand: 2})
			change.Uncommitted = true
			s.takesBackIn(tx, name, outbox.Waiting{EventIDs: []string{due.EventID, leased.EventID, old.EventID}}, change, outbox.TakenBack{Changed: 2})
			s.ok("commit", commit())
			for _, id := range ids {
				if s.hasRow(name, id, !change.Cancel); change.Cancel {
					continue
				}
				if row := s.row(id); row.LockedBy != "" || !row.LockedAt.IsZero() || !change.AvailableAt.IsZero() && !row.AvailableAt.Equal(change.AvailableAt) {
					s.t.Fatalf("%s: %+v", name, row)
				}
			}
		}
		s.unchanged("of another transaction", old)
	}},
	{"RescheduledRowsStayPostponed", func(s *storeSuite) {
		env := s.postponed(time.Minute)
		for _, at := range []time.Time{suiteTime.Add(time.Hour), suiteTime.Add(time.Second), env.OccurredAt, suiteTime.Add(-time.Hour)} {
			s.takesBack("reschedule", outbox.Waiting{EventIDs: []string{env.EventID}}, outbox.Change{AvailableAt: at}, outbox.TakenBack{Changed: 1})
			want := at
			if soonest := env.OccurredAt.Add(time.Microsecond); want.Before(soonest) {
				want = soonest
			}
			if row := s.row(env.EventID); !row.AvailableAt.Equal(want) || !row.CreatedAt.Equal(env.OccurredAt) {
				s.t.Fatalf("rescheduled to %s: %+v", at, row)
			}
			s.takesBack("the same time again", outbox.Waiting{EventIDs: []string{env.EventID}}, outbox.Change{AvailableAt: at}, outbox.TakenBack{Changed: 1})
		}
	}},
	{"ReplacesPayloadAndHeaders", func(s *storeSuite) {
		env := s.event(0)
		env.AvailableAt, env.Headers = env.OccurredAt.Add(time.Minute), map[string]string{"old": "header"}
		s.insert(env)
		for _, content := range []outbox.Envelope{
			{Payload: outbox.Bytes("application/protobuf", []byte{0, 1, 255}), Headers: map[string]string{"a": "1", "quote": `"'\`}},
			{Payload: outbox.RawJSON(`{"n": "it's \"so\""}`)},
		} {
			s.takesBack("replace", outbox.Waiting{EventIDs: []string{env.EventID}}, outbox.Change{Content: &content}, outbox.TakenBack{Changed: 1})
			want := env
			want.Payload, want.Headers = content.Payload, content.Headers
			b := s.pollAt(later)
			if len(b.Envelopes) != 1 {
				s.t.Fatalf("a poll read %d events", len(b.Envelopes))
			}
			s.sameEnvelope("replaced", b.Envelopes[0], want, 0)
		}
	}},
	{"ARowOfOneListenerStaysWithIt", func(s *storeSuite) {
		own := map[string]string{outbox.HeaderListener: `mail "é"`, outbox.HeaderEventID: "event-1"}
		env := s.event(0)
		env.AvailableAt, env.Headers = env.OccurredAt.Add(time.Minute), maps.Clone(own)
		env.Headers["old"] = "header"
		s.insert(env)
		for _, content := range []outbox.Envelope{
			{Payload: outbox.Bytes("application/protobuf", []byte{0, 1, 255}), Headers: map[string]string{"a": "1"}},
			{Payload: outbox.RawJSON(`{"n": 1}`)},
		} {
			given := maps.Clone(content.Headers)
			s.takesBack("replace", outbox.Waiting{EventIDs: []string{env.EventID}}, outbox.Change{Content: &content}, outbox.TakenBack{Changed: 1})
			if !maps.Equal(content.Headers, given) {
				s.t.Fatalf("the caller's headers became %v", content.Headers)
			}
			want := env
			want.Payload, want.Headers = content.Payload, maps.Clone(own)
			maps.Copy(want.Headers, content.Headers)
			b := s.pollAt(later)
			if len(b.Envelopes) != 1 {
				s.t.Fatalf("a poll read %d events", len(b.Envelopes))
			}
			s.sameEnvelope("replaced", b.Envelopes[0], want, 0)
		}
		content := outbox.Envelope{Payload: outbox.RawJSON("{}")}
		s.takesBack("replace", outbox.Waiting{EventIDs: []string{"none"}}, outbox.Change{Content: &content}, outbox.TakenBack{Delivered: 1})
	}},
	{"EndsWithItsTransaction", func(s *storeSuite) {
		env := s.postponed(time.Minute)
		before := stored{env, s.row(env.EventID)}
		which := outbox.Waiting{EventIDs: []string{env.EventID}}
		tx, _, rollback := s.Begin(s.t)
		s.takesBackIn(tx, "cancel", which, outbox.Change{Cancel: true}, outbox.TakenBack{Changed: 1})
		s.takesBackIn(tx, "cancel again", which, outbox.Change{Cancel: true}, outbox.TakenBack{Delivered: 1})
		s.ok("rollback", rollback())
		s.unchanged("after the rollback", before)
		s.takesBack("cancel", which, outbox.Change{Cancel: true}, outbox.TakenBack{Changed: 1})
		s.hasRow("cancelled", env.EventID, false)
	}},
	{"OfItsOwnTransaction", func(s *storeSuite) {
		delayed, atOnce := s.event(0), s.event(0)
		delayed.AvailableAt = delayed.OccurredAt.Add(time.Minute)
		tx, commit, _ := s.Begin(s.t)
		s.ok("Insert", s.Store.Insert(s.ctx, tx, []outbox.Envelope{delayed, atOnce}, "", suiteTime))
		which := outbox.Waiting{EventIDs: []string{delayed.EventID, atOnce.EventID}}
		s.takesBackIn(tx, "reschedule", which, outbox.Change{AvailableAt: suiteTime.Add(later)}, outbox.TakenBack{Changed: 1, InHand: 1})
		s.takesBackIn(tx, "cancel", which, outbox.Change{Cancel: true}, outbox.TakenBack{Changed: 1, InHand: 1})
		s.ok("commit", commit())
		s.hasRow("cancelled", delayed.EventID, false)
		s.hasRow("due at once", atOnce.EventID, true)
	}},
	{"ByKindAndKey", func(s *storeSuite) {
		of := func(after time.Duration, key, event string) outbox.Envelope {
			env := s.event(0)
			env.AggregateType, env.AggregateID, env.EventType = "Order", key, outbox.EventType(event)
			env.AvailableAt = env.OccurredAt.Add(after)
			s.insert(env)
			return env
		}
		first, second := of(time.Minute, "7", "Reminder"), of(2*time.Minute, "7", "Reminder")
		for _, other := range []outbox.Envelope{of(time.Minute, "8", "Reminder"), of(time.Minute, "7", "Placed")} {
			defer s.hasRow("of another kind or key", other.EventID, true)
		}
		of(0, "7", "Reminder")
		dead := of(time.Minute, "7", "Reminder")
		s.mark(outbox.OutcomeDead, "", outbox.Mark{EventID: dead.EventID, Attempts: 1})
		done := of(time.Minute, "7", "Reminder")
		s.mark(outbox.OutcomeDone, "", outbox.Mark{EventID: done.EventID})
		which := outbox.Waiting{Kind: outbox.EventKind{AggregateType: "Order", EventType: "Reminder"}, AggregateID: "7"}
		early := which
		early.DueBefore, early.DueAfter = second.AvailableAt, first.AvailableAt
		s.takesBack("between", early, outbox.Change{Cancel: true}, outbox.TakenBack{Changed: 1, Dead: 1})
		s.hasRow("due in time", first.EventID, false)
		s.hasRow("due later", second.EventID, true)
		s.takesBack("all", which, outbox.Change{AvailableAt: suiteTime.Add(later)}, outbox.TakenBack{Changed: 1, InHand: 1, Dead: 1})
		s.takesBack("all", which, outbox.Change{Cancel: true}, outbox.TakenBack{Changed: 1, InHand: 1, Dead: 1})
		s.hasRow("due later", second.EventID, false)
	}},
	{"NoClaimTakesWhatIsBeingTakenBack", func(s *storeSuite) {
		s.needRowLocks()
		env := s.postponed(time.Minute)
		claim := func() int {
			b := s.claim(outbox.ClaimQuery{
				Now: suiteTime.Add(later), Limit: 10, Lease: "node-1/1", LeaseDuration: time.Minute, EventIDs: []string{env.EventID}, FreshOnly: true,
			})
			return b.Len()
		}
		which := outbox.Waiting{EventIDs: []string{env.EventID}}
		tx, _, rollback := s.Begin(s.t)
		s.takesBackIn(tx, "cancel", which, outbox.Change{Cancel: true}, outbox.TakenBack{Changed: 1})
		claimed := make(chan int, 1)
		go func() { claimed <- claim() }()
		select {
		case n := <-claimed: // the claim skipped the row
			s.count("rows claimed during the transaction", n, 0)
			s.ok("rollback", rollback())
			s.count("rows claimed after the rollback", claim(), 1)
		case <-time.After(time.Second): // a server without SKIP LOCKED: the claim waits
			s.ok("rollback", rollback())
			s.count("rows claimed after the rollback", <-claimed, 1)
		}
		s.takesBack("in hand", which, outbox.Change{Cancel: true}, outbox.TakenBack{InHand: 1})
	}},
	{"EitherClaimedOrTakenBack", func(s *storeSuite) {
		const n = 20
		var envs []outbox.Envelope
		for range n {
			envs = append(envs, s.postponed(time.Minute))
		}
		var mu sync.Mutex
		claimed, cancelled := map[string]bool{}, map[string]bool{}
		var both sync.WaitGroup
		both.Go(func() {
			for i := range n {
				b, err := s.Store.Claim(s.ctx, s.DB, outbox.ClaimQuery{
					Now: suiteTime.Add(later), Limit: 1, Lease: fmt.Sprintf("node-1/%d", i), LeaseDuration: time.Minute, EventIDs: []string{envs[i].EventID}, FreshOnly: true,
				})
				if err != nil {
					s.t.Errorf("Claim: %v", err)
				}
				mu.Lock()
				for _, env := range b.Envelopes {
					claimed[env.EventID] = true
				}
				mu.Unlock()
			}
		})
		both.Go(func() {
			for i := range n {
				env := envs[n-1-i]
				tx, commit, rollback := s.Begin(s.t)
				taken, err := s.Store.TakeBack(s.ctx, tx, outbox.Waiting{EventIDs: []string{env.EventID}}, outbox.Change{Cancel: true})
				if err != nil {
					_ = rollback()
					s.t.Errorf("TakeBack: %v", err)
					return
				}
				if err := commit(); err != nil {
					s.t.Errorf("commit: %v", err)
				}
				mu.Lock()
				cancelled[env.EventID] = taken.Changed == 1
				mu.Unlock()
			}
		})
		both.Wait()
		for _, env := range envs {
			if claimed[env.EventID] == cancelled[env.EventID] {
				s.t.Errorf("event %s: claimed is %t, cancelled is %t", env.EventID, claimed[env.EventID], cancelled[env.EventID])
			}
		}
	}},
}

// postponed adds an event that is due the given time after it occurred.
func (s *storeSuite) postponed(after time.Duration) outbox.Envelope {
	s.t.Helper()
	env := s.event(0)
	env.AvailableAt = env.OccurredAt.Add(after)
	s.insert(env)
	return env
}

// takesBack changes events that wait in a transaction of its own.
func (s *storeSuite) takesBack(what string, which outbox.Waiting, change outbox.Change, want outbox.TakenBack) {
	s.t.Helper()
	tx, commit, _ := s.Begin(s.t)
	s.takesBackIn(tx, what, which, change, want)
	s.ok("commit", commit())
}

func (s *storeSuite) takesBackIn(tx outbox.Execer, what string, which outbox.Waiting, change outbox.Change, want outbox.TakenBack) {
	s.t.Helper()
	got, err := s.Store.TakeBack(s.ctx, tx, which, change)
	s.ok(what, err)
	if got != want {
		s.t.Fatalf("%s: %+v; want %+v", what, got, want)
	}
}
