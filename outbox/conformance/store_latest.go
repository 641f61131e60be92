package conformance

import (
	"fmt"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var latestTests = []storeTest{
	{"ReplacesTheEventThatWaits", func(s *storeSuite) {
		for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry} {
			first, other := s.latest("k", 1), s.latest("j", 1)
			first.Headers = map[string]string{"old": "header"}
			s.sameIDs("ids of the first writes", s.onceIn(first, other), idsOf([]outbox.Envelope{first, other}))
			unchanged := s.row(other.EventID)
			s.edit(first.EventID, func(row *RawRow) { row.Status = status })
			before := s.row(first.EventID)
			for _, after := range []time.Duration{2 * time.Minute, time.Second, -time.Hour} {
				env := s.latest("k", int(after))
				env.Headers = map[string]string{"after": after.String()}
				env.AvailableAt = first.OccurredAt.Add(after)
				s.sameIDs("ids", s.onceIn(env), []string{first.EventID})
				want := before
				want.AvailableAt = env.AvailableAt
				if after < 0 {
					want.AvailableAt = first.OccurredAt.Add(time.Microsecond)
				}
				s.sameRow("the replaced row", first.EventID, want)
				read := s.read(first.EventID)
				if read.Payload.String() != env.Payload.String() || len(read.Headers) != 1 || read.Headers["after"] != after.String() {
					s.t.Fatalf("replaced by %s with the headers %v: read %s with %v", env.Payload, env.Headers, read.Payload, read.Headers)
				}
			}
			s.sameRow("the row of another key", other.EventID, unchanged)
			s.count("events that wait", int(s.waiting()), 2)
			s.mark(outbox.OutcomeDelete, "", marksOf([]outbox.Envelope{first, other})...)
		}
	}},
	{"AnEventInHandLosesItsKey", func(s *storeSuite) {
		for what, hold := range map[string]func(row *RawRow){
			"leased":        func(row *RawRow) { row.LockedBy, row.LockedAt = "node-1/1", s.now() },
			"lease expired": func(row *RawRow) { row.LockedBy, row.LockedAt = "node-1/1", s.now().Add(-time.Hour) },
			"due at once":   func(row *RawRow) { row.AvailableAt = row.CreatedAt },
		} {
			first, second := s.latest("k", 1), s.latest("k", 2)
			s.onceIn(first)
			s.edit(first.EventID, hold)
			before := s.row(first.EventID)
			s.sameIDs(what, s.onceIn(second), []string{second.EventID})
			s.sameRow(what, first.EventID, before)
			s.sameIDs(what+", written again", s.onceIn(s.latest("k", 3)), []string{second.EventID})
			s.state(second.EventID, 3)
			s.mark(outbox.OutcomeRetry, before.LockedBy, outbox.Mark{EventID: first.EventID, Attempts: 1, Error: "it failed", AvailableAt: first.AvailableAt})
			s.state(first.EventID, 1)
			s.mark(outbox.OutcomeDelete, "", marksOf([]outbox.Envelope{first, second})...)
		}
	}},
	{"NoLease", func(s *storeSuite) {
		env := s.latest("k", 1)
		tx, commit, _ := s.Begin(s.t)
		_, err := s.Store.InsertOnce(s.ctx, tx, []outbox.Envelope{env}, "node-1/1", env.AvailableAt)
		s.ok("InsertOnce", err)
		s.ok("commit", commit())
		s.sameIDs("ids", s.onceIn(s.latest("k", 2)), []string{env.EventID})
		if row := s.row(env.EventID); row.LockedBy != "" {
			s.t.Errorf("the row has the lease %s", row.LockedBy)
		}
	}},
	{"ARollbackLeavesTheEarlierState", func(s *storeSuite) {
		waiting, leased := s.latest("waiting", 1), s.latest("leased", 1)
		s.onceIn(waiting, leased)
		s.edit(leased.EventID, func(row *RawRow) { row.LockedBy, row.LockedAt = "node-1/1", s.now() })
		before := []stored{{waiting, s.row(waiting.EventID)}, {leased, s.row(leased.EventID)}}
		second := s.latest("leased", 2)
		tx, _, rollback := s.Begin(s.t)
		s.sameIDs("ids", s.once(tx, s.latest("waiting", 2), second), []string{waiting.EventID, second.EventID})
		s.ok("rollback", rollback())
		s.unchanged("after the rollback", before...)
		s.state(waiting.EventID, 1)
		s.hasRow("the event of the rolled-back write", second.EventID, false)
		s.sameIDs("ids of events that are skipped", s.onceIn(s.unique("waiting"), s.unique("leased")), idsOf([]outbox.Envelope{waiting, leased}))
	}},
	{"ADuplicateIDChangesNothing", func(s *storeSuite) {
		done, leased := s.insertedAs(outbox.StatusDone, ""), s.latest("k", 1)
		s.onceIn(leased)
		s.edit(leased.EventID, func(row *RawRow) { row.LockedBy, row.LockedAt = "node-1/1", s.now() })
		env := s.latest("k", 2)
		env.EventID = done.EventID
		s.refuses(done.EventID, env)
		s.refuses(done.EventID, s.event(0), env)
		s.sameIDs("ids of an event that is skipped", s.onceIn(s.unique("k")), []string{leased.EventID})
	}},
	{"TheSameIDIsReplaced", func(s *storeSuite) {
		first, second := s.latest("k", 1), s.latest("k", 2)
		second.EventID = first.EventID
		s.onceIn(first)
		s.sameIDs("ids", s.onceIn(second), []string{first.EventID})
		s.state(first.EventID, 2)
	}},
	{"InOneTransactionAndInOneCall", func(s *storeSuite) {
		first, atOnce := s.latest("k", 1), s.unique("j")
		tx, commit, _ := s.Begin(s.t)
		s.sameIDs("ids of a call", s.once(tx, first, s.latest("k", 2), s.unique("k"), atOnce), []string{first.EventID, first.EventID, first.EventID, atOnce.EventID})
		fresh := s.latest("j", 3)
		s.sameIDs("ids of the next call", s.once(tx, s.latest("k", 3), fresh, s.event(0))[:2], []string{first.EventID, fresh.EventID})
		s.ok("commit", commit())
		s.state(first.EventID, 3)
		s.count("events that wait", int(s.waiting()), 4)
	}},
	{"OfAnotherKind", func(s *storeSuite) {
		first, other, another := s.latest("k", 1), s.latest("k", 2), s.latest("k", 3)
		other.EventType, another.AggregateType = "Other", "Other"
		s.sameIDs("ids", s.onceIn(first, other, another), idsOf([]outbox.Envelope{first, other, another}))
		s.state(first.EventID, 1)
	}},
	{"AWriteWaitsForTheTransactionBeforeIt", func(s *storeSuite) {
		s.needRowLocks()
		for _, commits := range []bool{true, false} {
			first, second := s.latest("k", 1), s.latest("k", 2)
			want := second.EventID
			if commits {
				want = first.EventID
			}
			s.after(commits, first, func(tx outbox.Execer) {
				s.sameIDs("ids", s.once(tx, second), []string{want})
				s.once(tx, s.event(0))
			})
			s.state(want, 2)
			s.count("events that wait", int(s.waiting()), 2)
			s.mark(outbox.OutcomeDelete, "", marksOf(s.pollAt(later).Envelopes)...)
		}
	}},
	{"WritersOfOneKeyDoNotDeadlock", func(s *storeSuite) {
		s.needRowLocks()
		const writers, writes = 5, 10
		s.onceIn(s.latest("k", 0))
		var all sync.WaitGroup
		for range writers {
			var envs []outbox.Envelope
			for n := range writes {
				envs = append(envs, s.latest("k", n))
			}
			all.Go(func() {
				for i := range envs {
					tx, commit, rollback := s.Begin(s.t)
					if _, err := s.Store.InsertOnce(s.ctx, tx, envs[i:i+1], "", time.Time{}); err != nil {
						_ = rollback()
						s.t.Errorf("InsertOnce: %v", err)
					} else if err := commit(); err != nil {
						s.t.Errorf("commit: %v", err)
					}
				}
			})
		}
		all.Wait()
		s.count("events", s.pollAt(later).Len(), 1)
		s.state(s.pollAt(later).Envelopes[0].EventID, writes-1)
	}},
	{"AClaimHasTheNewStateOrLeavesItWaiting", func(s *storeSuite) {
		const n = 20
		var keys []outbox.Envelope
		for i := range n {
			keys = append(keys, s.latest(fmt.Sprint("k", i), 1))
		}
		s.onceIn(keys...)
		claimed := map[string]string{}
		ids := make([]string, n)
		var both sync.WaitGroup
		both.Go(func() {
			for i := range n {
				b, err := s.Store.Claim(s.ctx, s.DB, outbox.ClaimQuery{
					Now: suiteTime.Add(later), Limit: 1, Lease: fmt.Sprintf("node-1/%d", i), LeaseDuration: time.Minute, EventIDs: []string{keys[i].EventID}, FreshOnly: true,
				})
				if err != nil {
					s.t.Errorf("Claim: %v", err)
				}
				for _, env := range b.Envelopes {
					claimed[env.EventID] = env.Payload.String()
				}
			}
		})
		both.Go(func() {
			for i := n - 1; i >= 0; i-- {
				tx, commit, rollback := s.Begin(s.t)
				got, err := s.Store.InsertOnce(s.ctx, tx, []outbox.Envelope{s.latest(fmt.Sprint("k", i), 2)}, "", time.Time{})
				if err != nil {
					_ = rollback()
					s.t.Errorf("InsertOnce: %v", err)
					return
				}
				if err := commit(); err != nil {
					s.t.Errorf("commit: %v", err)
				}
				ids[i] = got[0]
			}
		})
		both.Wait()
		for i, env := range keys {
			payload, inHand := claimed[env.EventID]
			if replaced := ids[i] == env.EventID; inHand && replaced != (payload == "2") {
				s.t.Errorf("event %s was claimed with the state %s, and replaced: %t", env.EventID, payload, replaced)
			}
			if payload != "2" {
				s.state(ids[i], 2)
			}
		}
	}},
}

// latest is an event with a unique key whose state is the latest.
func (s *storeSuite) latest(key string, state int) outbox.Envelope {
	env := s.unique(key)
	env.KeepLatest, env.Payload = true, outbox.RawJSON(fmt.Sprint(state))
	env.AvailableAt = env.OccurredAt.Add(time.Minute)
	return env
}

// read is the pending event of an id, which has no lease.
func (s *storeSuite) read(id string) outbox.Envelope {
	s.t.Helper()
	for _, env := range s.pollAt(2 * later).Envelopes {
		if env.EventID == id {
			return env
		}
	}
	s.t.Fatalf("a poll did not read event %s", id)
	return outbox.Envelope{}
}

// state checks the payload of a pending event.
func (s *storeSuite) state(id string, want int) {
	s.t.Helper()
	if env := s.read(id); env.Payload.String() != fmt.Sprint(want) {
		s.t.Fatalf("event %s has the state %s; want %d", id, env.Payload, want)
	}
}
