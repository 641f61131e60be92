package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var insertTests = []storeTest{
	{"WhatIsReadEqualsWhatWasSealed", func(s *storeSuite) {
		cases := roundTripEvents(s)
		names := map[string]string{}
		var envs []outbox.Envelope
		for name, env := range cases {
			names[env.EventID] = name
			envs = append(envs, env)
		}
		s.insert(envs...)
		b := s.poll(outbox.PollQuery{Now: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), Limit: 1000})
		s.count("rows that do not decode", len(b.Undecodable), 0)
		s.count("rows", len(b.Envelopes), len(envs))
		for _, got := range b.Envelopes {
			name, ok := names[got.EventID]
			if !ok {
				s.t.Errorf("an event of id %q was read, which was not written", got.EventID)
				continue
			}
			for _, d := range diffEnvelopes(got, cases[name]) {
				s.t.Errorf("%s: %s", name, d)
			}
			row := s.row(got.EventID)
			if !row.CreatedAt.Equal(cases[name].OccurredAt) || !row.AvailableAt.Equal(cases[name].AvailableAt) {
				s.t.Errorf("%s: created_at is %v and available_at %v", name, row.CreatedAt, row.AvailableAt)
			}
		}
	}},
	{"IdsThatDifferInCaseAccentsOrSpacesAreDifferent", func(s *storeSuite) {
		var want []string
		for _, id := range []string{"event-a", "event-A", "event-á", "event-ａ", "event-a ", " event-a"} {
			env := s.event(0)
			env.EventID = id
			s.insert(env)
			want = append(want, id)
		}
		got := idsOf(s.pollAt(later).Envelopes)
		slices.Sort(got)
		slices.Sort(want)
		s.sameIDs("ids", got, want)
		s.mark(outbox.OutcomeDone, "", outbox.Mark{EventID: "event-a"})
		s.count("rows left", s.pollAt(later).Len(), 5)
	}},
	{"RowsStartNewWithoutAttempts", func(s *storeSuite) {
		env := s.event(0)
		env.Attempts = 7 // filled for listeners, ignored when writing
		s.insert(env)
		s.sameRow("row", env.EventID, RawRow{CreatedAt: env.OccurredAt, AvailableAt: env.AvailableAt})
	}},
	{"TenThousandEventsInOneCall", func(s *storeSuite) {
		envs := s.events(10_000)
		s.insert(envs...)
		b := s.poll(outbox.PollQuery{Now: suiteTime.Add(later), Limit: 20_000})
		s.sameIDs("ids", idsOf(b.Envelopes), idsOf(envs))
	}},
	{"NothingIsVisibleBeforeCommit", func(s *storeSuite) {
		env := s.event(0)
		tx, commit, _ := s.Begin(s.t)
		s.ok("Insert", s.Store.Insert(s.ctx, tx, []outbox.Envelope{env}, "", time.Time{}))
		s.count("rows polled before the commit", s.pollAt(later).Len(), 0)
		if !s.SingleWriter {
			s.count("rows claimed before the commit", s.claimFor("a", 10).Len(), 0)
		}
		s.ok("commit", commit())
		s.sameIDs("ids after the commit", idsOf(s.pollAt(later).Envelopes), []string{env.EventID})
	}},
	{"RollbackLeavesNothing", func(s *storeSuite) {
		envs := s.events(3)
		tx, _, rollback := s.Begin(s.t)
		s.ok("Insert", s.Store.Insert(s.ctx, tx, envs, "a/1", suiteTime))
		s.ok("rollback", rollback())
		s.count("rows after the rollback", s.pollAt(later).Len(), 0)
		s.insert(envs...) // the ids are free again
		s.count("rows when they are written again", s.pollAt(later).Len(), 3)
	}},
	{"NoEventsIsNoWork", func(s *storeSuite) {
		tx, commit, _ := s.Begin(s.t)
		s.ok("Insert of nil", s.Store.Insert(s.ctx, tx, nil, "", time.Time{}))
		s.ok("Insert of an empty list", s.Store.Insert(s.ctx, tx, []outbox.Envelope{}, "a/1", suiteTime))
		s.ok("commit", commit())
		s.count("rows", s.pollAt(later).Len(), 0)
	}},
	{"DuplicateIDFailsAndSaysWhich", func(s *storeSuite) {
		env := s.inserted()
		for _, batch := range [][]outbox.Envelope{{env}, {s.event(0), env}} {
			tx, _, rollback := s.Begin(s.t)
			err := s.Store.Insert(s.ctx, tx, batch, "", time.Time{})
			s.ok("rollback", rollback())
			if err == nil {
				s.t.Fatalf("Insert of %d events, of which one is there already, did not fail", len(batch))
			}
			s.mentions(err, s.Table)
			if len(batch) == 1 {
				s.mentions(err, env.EventID)
			}
			s.sameIDs("ids", idsOf(s.pollAt(later).Envelopes), []string{env.EventID})
		}
	}},
	{"WithALeaseRowsAreLeased", func(s *storeSuite) {
		lease := strings.Repeat("é", 128) // the longest
		envs := s.events(3)
		before := s.now()
		s.insertFor(lease, envs...)
		for _, env := range envs {
			s.leasedRow(env.EventID, lease, before, RawRow{CreatedAt: env.OccurredAt, AvailableAt: env.AvailableAt})
		}
		s.count("rows that another node claims", s.claimFor("node-2/1", 10).Len(), 0)
		s.count("rows that a poll reads", s.pollAt(later).Len(), 0)
	}},
	{"RowsAreLeasedThatAreDueAtTheGivenTime", func(s *storeSuite) {
		now, delayed := s.event(0), s.event(0)
		due := suiteTime.Add(time.Minute)
		now.AvailableAt, delayed.AvailableAt = due, due.Add(time.Microsecond)
		tx, commit, _ := s.Begin(s.t)
		s.ok("Insert", s.Store.Insert(s.ctx, tx, []outbox.Envelope{now, delayed}, "node-1/1", due))
		s.ok("commit", commit())
		s.sameRow("row of the delayed event", delayed.EventID, RawRow{CreatedAt: delayed.OccurredAt, AvailableAt: delayed.AvailableAt})
		if got := s.row(now.EventID).LockedBy; got != "node-1/1" {
			s.t.Fatalf("the event beside it is under %q, want node-1/1", got)
		}
		s.sameIDs("rows that another node claims", idsOf(s.claimFor("node-2/1", 10).Envelopes), []string{delayed.EventID})
	}},
}

// roundTripEvents are envelopes at the limits that sealing allows.
func roundTripEvents(s *storeSuite) map[string]outbox.Envelope {
	with := func(change func(env *outbox.Envelope)) outbox.Envelope {
		env := s.event(0)
		change(&env)
		return env
	}
	payload := func(text string) outbox.Envelope {
		return with(func(env *outbox.Envelope) { env.Payload = outbox.RawJSON(text) })
	}
	at := func(t time.Time) outbox.Envelope {
		return with(func(env *outbox.Envelope) { env.OccurredAt, env.AvailableAt = t, t })
	}
	awkward := `it's "quoted" \ back; -- ? $1 %s :name {0} 日本 é 🎉` + "\t\n"
	return map[string]outbox.Envelope{
		"only what is required": s.event(0),
		"all fields": with(func(env *outbox.Envelope) {
			env.AggregateType, env.AggregateID, env.TenantID = "Order", "o-1", "acme"
			env.Headers = map[string]string{"source": "api", "empty": "", awkward: awkward}
		}),
		"awkward text": with(func(env *outbox.Envelope) {
			env.EventType, env.AggregateType = outbox.EventType(awkward), outbox.AggregateType(awkward)
			env.AggregateID, env.TenantID = awkward, awkward
		}),
		"longest fields": with(func(env *outbox.Envelope) {
			env.EventID = strings.Repeat("é", outbox.MaxEventIDLength)
			env.EventType = outbox.EventType(strings.Repeat("事", outbox.MaxEventTypeLength))
			env.AggregateType = outbox.AggregateType(strings.Repeat("🎉", outbox.MaxAggregateTypeLength))
			env.AggregateID = strings.Repeat("🎉", outbox.MaxAggregateIDLength)
			env.TenantID = strings.Repeat("🎉", outbox.MaxTenantIDLength)
		}),
		"largest headers": with(func(env *outbox.Envelope) { // as JSON the headers are much longer
			env.Headers = map[string]string{"k": strings.Repeat("\x01", outbox.MaxHeadersBytes-1)}
		}),
		"largest payload":       payload(`"` + strings.Repeat("x", outbox.MaxPayloadBytes-2) + `"`),
		"payload of characters": payload(`{"text":"it's \"quoted\" \\ back; -- ? $1 %s :name 日本 é 🎉\n\u00e9\ud83c\udf89"}`),
		"payload null":          payload(`null`),
		"payload string":        payload(`""`),
		"payload number":        payload(`-12345678901234567890.5`),
		"payload list":          payload(`[]`),
		"payload nested":        payload(`{"a":[{"b":{"c":[1,2,[3]]}}],"é":false}`),
		"last microsecond":      at(time.Date(2024, 12, 31, 23, 59, 59, 999999000, time.UTC)),
		"first microsecond":     at(time.Date(2024, 1, 1, 0, 0, 0, 1000, time.UTC)),
		"whole second":          at(time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)),
		"before 1970":           at(time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC)),
		"earliest year":         at(time.Date(1000, 1, 2, 0, 0, 0, 0, time.UTC)),
		"latest year":           at(time.Date(9999, 12, 30, 23, 59, 59, 999999000, time.UTC)),
		"hour that clocks skip": at(time.Date(2024, 3, 31, 2, 30, 0, 0, time.UTC)),
		"available later": with(func(env *outbox.Envelope) {
			env.AvailableAt = env.OccurredAt.Add(time.Hour + time.Microsecond)
		}),
	}
}
