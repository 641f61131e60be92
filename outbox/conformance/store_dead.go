package conformance

import (
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var deadTests = []storeTest{
	{"ListHasEverythingButPayloadAndHeaders", func(s *storeSuite) {
		s.notDead()
		second := s.died(2*time.Second, func(env *outbox.Envelope) {
			env.AggregateType, env.AggregateID, env.TenantID = "Order", "o-1", "acme"
			env.Headers = map[string]string{"source": "api"}
		})
		first := s.died(time.Second, nil)
		third := s.died(2*time.Second, nil) // at the same time as the second letter, with a later id
		letters := s.queryDead(outbox.DeadRowsQuery{Listed: true})
		s.sameIDs("by the time of death, then by id", deadIDs(letters), []string{first.EventID, second.EventID, third.EventID})
		for i, env := range []outbox.Envelope{first, second} {
			env.Payload, env.Headers = outbox.Payload{}, nil
			s.sameLetter(letters[i], env, suiteTime.Add(time.Duration(i+1)*time.Second))
		}
		s.sameIDs("limited", deadIDs(s.queryDead(outbox.DeadRowsQuery{Limit: 2})), []string{first.EventID, second.EventID})

		// An event that Mark made dead died when it was marked.
		before := s.now()
		env := s.inserted()
		s.mark(outbox.OutcomeDead, "", outbox.Mark{EventID: env.EventID, Error: "marked"})
		letters = s.queryDead(outbox.DeadRowsQuery{DeadFilter: outbox.DeadFilter{Since: before.Add(-clockSlack)}})
		s.sameIDs("since then", deadIDs(letters), []string{env.EventID})
		s.duringCall("time of death", letters[0].DiedAt, before)
	}},
	{"Filters", func(s *storeSuite) {
		_, others := s.notDead()
		typed := func(aggregate outbox.AggregateType, event outbox.EventType) func(env *outbox.Envelope) {
			return func(env *outbox.Envelope) { env.AggregateType, env.EventType = aggregate, event }
		}
		a := s.died(1*time.Second, typed("Order", "Placed")).EventID
		b := s.died(2*time.Second, func(env *outbox.Envelope) {
			env.AggregateType, env.EventType, env.AggregateID, env.TenantID = "Order", "Paid", "o-1", "acme"
		}).EventID
		c := s.died(3*time.Second, typed("Invoice", "Paid")).EventID
		d := s.died(4*time.Second, typed("order", "paid")).EventID
		at := func(seconds int) time.Time { return suiteTime.Add(time.Duration(seconds) * time.Second) }
		for name, test := range map[string]struct {
			filter outbox.DeadFilter
			want   []string
		}{
			"all":                     {outbox.DeadFilter{}, []string{a, b, c, d}},
			"event type":              {outbox.DeadFilter{EventType: "Paid"}, []string{b, c}},
			"aggregate type":          {outbox.DeadFilter{AggregateType: "Order"}, []string{a, b}},
			"both types":              {outbox.DeadFilter{AggregateType: "Order", EventType: "Paid"}, []string{b}},
			"aggregate id":            {outbox.DeadFilter{AggregateID: "o-1"}, []string{b}},
			"tenant":                  {outbox.DeadFilter{TenantID: "acme"}, []string{b}},
			"no aggregate type":       {outbox.DeadFilter{AggregateType: outbox.Global}, nil},
			"ids":                     {outbox.DeadFilter{EventIDs: []string{d, "no such event", a}}, []string{a, d}},
			"ids and a type":          {outbox.DeadFilter{EventIDs: []string{d, a}, EventType: "Placed"}, []string{a}},
			"ids of others":           {outbox.DeadFilter{EventIDs: others}, nil},
			"a group is not compared": {outbox.DeadFilter{EventType: "Paid", Group: "none"}, []string{b, c}},
			"since, inclusive":        {outbox.DeadFilter{Since: at(2)}, []string{b, c, d}},
			"until, exclusive":        {outbox.DeadFilter{Until: at(3)}, []string{a, b}},
			"since and until":         {outbox.DeadFilter{Since: at(2), Until: at(4)}, []string{b, c}},
			"everything":              {outbox.DeadFilter{EventType: "Paid", AggregateType: "Invoice", Since: at(1), Until: at(9)}, []string{c}},
			"nothing of that type":    {outbox.DeadFilter{EventType: "Cancelled"}, nil},
			"nothing in that time":    {outbox.DeadFilter{Since: at(7)}, nil},
			"an empty span of time":   {outbox.DeadFilter{Since: at(2), Until: at(2)}, nil},
			"a wildcard is no filter": {outbox.DeadFilter{EventType: "%"}, nil},
		} {
			s.sameIDs(name, deadIDs(s.queryDead(outbox.DeadRowsQuery{DeadFilter: test.filter})), test.want)
			n, err := s.Store.CountDead(s.ctx, s.DB, test.filter)
			s.ok("CountDead", err)
			s.count("CountDead of "+name, int(n), len(test.want))
		}
	}},
	{"PagesCoverEveryLetterOnce", func(s *storeSuite) {
		s.notDead()
		var want []string
		for i := range 11 {
			want = append(want, s.died(time.Duration(i/4)*time.Second, nil).EventID)
		}
		for _, keysOnly := range []bool{false, true} {
			for _, limit := range []int{1, 3, 100} {
				var got []string
				q := outbox.DeadRowsQuery{Limit: limit, KeysOnly: keysOnly}
				for {
					page := s.queryDead(q)
					got = append(got, deadIDs(page)...)
					if len(page) < limit {
						break
					}
					last := page[len(page)-1]
					q.AfterDiedAt, q.AfterEventID = last.DiedAt, last.EventID
				}
				s.sameIDs("ids of all pages", got, want)
			}
		}
	}},
	{"CreatedAtStandsInForDoneAt", func(s *storeSuite) {
		s.notDead()
		var want []string
		for i := range 10 {
			env := s.died(time.Duration(i/2)*time.Second, nil)
			want = append(want, env.EventID)
			if i%3 > 0 { // as rows that another program marked
				s.edit(env.EventID, func(row *RawRow) { row.CreatedAt, row.DoneAt = row.DoneAt, time.Time{} })
			}
		}
		for _, keysOnly := range []bool{false, true} {
			for _, limit := range []int{1, 2, 3, 100} {
				var got []string
				q := outbox.DeadRowsQuery{Limit: limit, KeysOnly: keysOnly}
				for {
					page := s.queryDead(q)
					got = append(got, deadIDs(page)...)
					if len(page) < limit {
						break
					}
					last := page[len(page)-1]
					q.AfterDiedAt, q.AfterEventID = last.DiedAt, last.EventID
				}
				s.sameIDs("ids of all pages", got, want)
			}
		}
		within := outbox.DeadFilter{Since: suiteTime.Add(time.Second), Until: suiteTime.Add(4 * time.Second)}
		for _, ids := range [][]string{nil, want} {
			within.EventIDs = ids
			s.sameIDs("within a time", deadIDs(s.queryDead(outbox.DeadRowsQuery{DeadFilter: within})), want[2:8])
			n, err := s.Store.CountDead(s.ctx, s.DB, within)
			s.ok("CountDead", err)
			s.count("CountDead within a time", int(n), 6)
		}
	}},
	{"KeysOnly", func(s *storeSuite) {
		env := s.died(time.Second, nil)
		letters := s.queryDead(outbox.DeadRowsQuery{KeysOnly: true})
		s.sameIDs("ids", deadIDs(letters), []string{env.EventID})
		if l := letters[0]; !l.DiedAt.Equal(suiteTime.Add(time.Second)) || !l.Payload.IsZero() || l.EventType != "" || l.LastError != "" {
			s.t.Fatalf("the key is not just id and time of death: %+v, died at %v", l, l.DiedAt)
		}
	}},
	{"ListReadsNoPayloads", func(s *storeSuite) {
		large := outbox.JSON(strings.Repeat("é", 400_000))
		env := s.died(time.Second, func(env *outbox.Envelope) {
			env.Payload, env.Headers = large, map[string]string{"source": strings.Repeat("a", 60_000)}
		})
		s.edit(env.EventID, func(row *RawRow) { row.LastError = strings.Repeat("é", 5000) })
		for _, q := range []outbox.DeadRowsQuery{{}, {Listed: true}, {DeadFilter: outbox.DeadFilter{EventIDs: []string{env.EventID}}, Listed: true}} {
			letter := s.queryDead(q)[0]
			want := 0
			if q.Listed {
				want = large.Len()
			}
			if !letter.Payload.IsZero() || len(letter.Headers) > 0 || letter.PayloadBytes != want {
				s.t.Fatalf("%+v: the letter has a payload of %d bytes, %d headers, and PayloadBytes is %d, want %d", q, letter.Payload.Len(), len(letter.Headers), letter.PayloadBytes, want)
			}
			if letter.LastError != strings.Repeat("é", outbox.MaxErrorLength) {
				s.t.Fatalf("the letter has an error of %d bytes", len(letter.LastError))
			}
		}
	}},
	{"ListHasTheListenerOfARow", func(s *storeSuite) {
		env := s.died(time.Second, func(env *outbox.Envelope) { env.Headers = listenerHeaders() })
		s.onlyListener(s.queryDead(outbox.DeadRowsQuery{Listed: true})[0].Headers)
		brief := s.queryDead(outbox.DeadRowsQuery{})[0]
		if brief.Headers[outbox.HeaderListener] != env.Headers[outbox.HeaderListener] || brief.EventType != env.EventType || brief.AggregateType != env.AggregateType ||
			brief.AggregateID != env.AggregateID || brief.TenantID != env.TenantID || brief.LastError != "it failed" {
			s.t.Fatalf("without Listed, a letter of %+v is %+v", env, brief)
		}
		letter, err := s.Store.GetDead(s.ctx, s.DB, env.EventID)
		s.ok("GetDead", err)
		s.sameLetter(letter, env, suiteTime.Add(time.Second))
	}},
	{"GetFindsOnlyDeadRows", func(s *storeSuite) {
		env := s.died(time.Second, func(env *outbox.Envelope) { env.Headers = map[string]string{"source": "api"} })
		letter, err := s.Store.GetDead(s.ctx, s.DB, env.EventID)
		s.ok("GetDead", err)
		s.sameLetter(letter, env, suiteTime.Add(time.Second))
		s.count("PayloadBytes", letter.PayloadBytes, len(letter.Payload.String()))
		_, others := s.notDead()
		for _, id := range append(others, "no such event") {
			if _, err := s.Store.GetDead(s.ctx, s.DB, id); !errors.Is(err, outbox.ErrNotFound) {
				s.t.Fatalf("GetDead of %s: got %v, want ErrNotFound", id, err)
			}
		}
	}},
	{"ReplayMakesDeadRowsNew", func(s *storeSuite) {
		rows, others := s.notDead()
		for _, to := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry} {
			s.replays(to, rows, others)
		}
	}},
	{"DeleteDeletesOnlyDeadRows", func(s *storeSuite) {
		gone := []string{s.died(time.Second, nil).EventID, s.died(2*time.Second, nil).EventID}
		_, others := s.notDead()
		kept := append(others, s.died(3*time.Second, nil).EventID)
		n, err := s.Store.DeleteDead(s.ctx, s.DB, append([]string{"no such event", gone[0], gone[1]}, kept[:3]...), "", time.Time{})
		s.ok("DeleteDead", err)
		s.count("deleted", n, 2)
		s.left("rows left", append(gone, kept...), kept)
		n, err = s.Store.DeleteDead(s.ctx, s.DB, nil, "", time.Time{})
		s.ok("DeleteDead of nothing", err)
		s.count("deleted of nothing", n, 0)
	}},
	{"ADeletionIsRestored", restores},
	{"ADeletedLetterIsNeitherDeadNorDelivered", deletedLetters},
	{"EachLetterIsRestoredOnceOrPurged", restoresAtOnce},
}

// listenerHeaders are the headers of a row for one of several listeners, and a header of the
// writer.
func listenerHeaders() map[string]string {
	return map[string]string{outbox.HeaderListener: `mail "é" \`, outbox.HeaderEventID: "event-1", "source": "api"}
}

// onlyListener checks that a list has the listenerHeaders without the writer's header.
func (s *storeSuite) onlyListener(got map[string]string) {
	s.t.Helper()
	want := listenerHeaders()
	delete(want, "source")
	if !maps.Equal(got, want) {
		s.t.Fatalf("the headers in a list are %q, want %q", got, want)
	}
}

// died adds a dead event that died the given time after suiteTime.
func (s *storeSuite) died(after time.Duration, change func(env *outbox.Envelope)) outbox.Envelope {
	s.t.Helper()
	env := s.event(0)
	if change != nil {
		change(&env)
	}
	s.insert(env)
	s.edit(env.EventID, func(row *RawRow) {
		row.Status, row.Attempts, row.LastError, row.DoneAt = outbox.StatusDead, 4, "it failed", suiteTime.Add(after)
	})
	return env
}

// notDead adds a row of every status but DEAD.
func (s *storeSuite) notDead() (rows []stored, ids []string) {
	s.t.Helper()
	for i, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry, outbox.StatusDone} {
		rows = append(rows, s.insertedAs(status, ""))
		ids = append(ids, rows[i].EventID)
	}
	return rows, ids
}

// sameLetter checks the dead letter of an event that died added.
func (s *storeSuite) sameLetter(got outbox.DeadLetter, env outbox.Envelope, diedAt time.Time) {
	s.t.Helper()
	env.Attempts = 4
	for _, d := range diffEnvelopes(got.Envelope, env) {
		s.t.Errorf("dead letter: %s", d)
	}
	if got.LastError != "it failed" || !got.DiedAt.Equal(diedAt) || got.DiedAt.Location() != time.UTC {
		s.t.Errorf("the dead letter died at %v of %q, want at %v of %q", got.DiedAt, got.LastError, diedAt, "it failed")
	}
}

// replays gives a dead row another status, and leaves rows alone that are not dead.
func (s *storeSuite) replays(to outbox.Status, rows []stored, others []string) {
	s.t.Helper()
	env := s.died(time.Second, nil)
	s.edit(env.EventID, func(row *RawRow) { row.LockedBy, row.LockedAt = "node-1", suiteTime })
	now := suiteTime.Add(time.Minute + time.Microsecond)
	replay := func(what string, want int, ids ...string) {
		n, err := s.Store.ReplayDead(s.ctx, s.DB, ids, now, to)
		s.ok("ReplayDead", err)
		s.count(what, n, want)
	}
	replay("replayed", 1, append([]string{env.EventID, "no such event"}, others...)...)
	s.sameRow("replayed row", env.EventID, RawRow{Status: to, CreatedAt: env.OccurredAt, AvailableAt: now})
	s.unchanged("row that was not dead", rows...)
	s.count("dead letters left", len(s.queryDead(outbox.DeadRowsQuery{})), 0)
	replay("replayed again", 0, env.EventID)
	replay("replayed of nothing", 0)
}
