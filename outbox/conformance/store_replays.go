package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// replayTests: the rows of replays are replaced as the ranges are, together with the rows that a step
// adds, and delivered events are read in pages.
var replayTests = []storeTest{
	{"AreReadAsTheyWereSet", replaysAreRead},
	{"AVersionIsReplacedOnce", replayVersions},
	{"RowsAreAddedWithTheStepOrNotAtAll", replaySteps},
	{"AStepThatAddsWaitsForItsTime", replayPace},
	{"OfManyStepsAtOnceOneIsMade", replayRace},
	{"DeliveredEventsAreReadInPages", deliveredPages},
	{"DeliveredEventsAreChosen", deliveredChosen},
	{"RowsThatCannotBeReadAreCounted", deliveredSpoilt},
	{"RowsMayBePurgedBeneath", deliveredPurged},
	{"LargePayloadsComeInSeveralReads", deliveredLarge},
	{"UntriedAndFailedRowsAreCounted", addedRows},
}

func (s *storeSuite) replayRows() []outbox.ReplayRow {
	s.t.Helper()
	before := s.now()
	rows, err := s.Store.Replays(s.ctx, s.DB)
	s.ok("Replays", err)
	for _, row := range rows {
		s.duringCall("Now", row.Now, before)
		if row.Name != "" {
			s.t.Fatalf("a row has the name %q, want none", row.Name)
		}
	}
	slices.SortFunc(rows, func(a, b outbox.ReplayRow) int { return strings.Compare(a.Version, b.Version) })
	return rows
}

func (s *storeSuite) setsReplay(was string, next outbox.ReplayRow, envs ...outbox.Envelope) bool {
	s.t.Helper()
	set, err := s.Store.SetReplay(s.ctx, s.DB, was, next, envs)
	s.ok("SetReplay", err)
	return set
}

// sameReplays compares the versions and the values of the rows.
func (s *storeSuite) sameReplays(what string, want ...outbox.ReplayRow) {
	s.t.Helper()
	same := func(a, b outbox.ReplayRow) bool { return a.Version == b.Version && a.Value == b.Value }
	if got := s.replayRows(); !slices.EqualFunc(got, want, same) {
		s.t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func replaysAreRead(s *storeSuite) {
	s.sameReplays("no replay")
	was := ""
	for i, value := range []string{"{}", `{"n":"é🎉 \"1\" \\ '"}`, strings.Repeat("x", 60_000)} {
		next := outbox.ReplayRow{Name: `a "name" \ ' é🎉`, Version: fmt.Sprintf("1/%d é", i), Value: value}
		if !s.setsReplay(was, next) {
			s.t.Fatalf("a value of %d bytes is not set", len(value))
		}
		s.sameReplays("as set", next)
		was = next.Version
	}
	other := outbox.ReplayRow{Name: "other", Version: "2", Value: "{}"}
	s.setsReplay("", other)
	gone := outbox.ReplayRow{Name: `a "name" \ ' é🎉`, Version: "3"}
	if s.setsReplay("0", gone) || !s.setsReplay(was, gone) || s.setsReplay(was, gone) {
		s.t.Fatal("a row is deleted once, by its version")
	}
	s.sameReplays("after a deletion", other)
	if !s.setsReplay("", outbox.ReplayRow{Name: gone.Name, Version: "1", Value: "new"}) {
		s.t.Fatal("a name is not free after its deletion")
	}
	shares, err := s.Store.AllShares(s.ctx, s.DB)
	s.ok("AllShares", err)
	pauses, err := s.Store.Paused(s.ctx, s.DB)
	s.ok("Paused", err)
	if len(shares)+len(pauses) > 0 {
		s.t.Fatalf("replays are read as something else: %+v, %+v", shares, pauses)
	}
}

func replayVersions(s *storeSuite) {
	for _, tt := range []struct {
		was, next string
		want      bool
	}{
		{"0", "2", false}, // no call has set this version
		{"", "1", true},
		{"", "1", false}, // late
		{"", "2", false},
		{"1", "2", true},
		{"1", "2", false},
		{"1", "3", false},
		{"2", "3", true},
	} {
		if set := s.setsReplay(tt.was, outbox.ReplayRow{Name: "r", Version: tt.next, Value: "of " + tt.next}); set != tt.want {
			s.t.Fatalf("setting %s after %q: %t, want %t", tt.next, tt.was, set, tt.want)
		}
	}
	s.sameReplays("at the end", outbox.ReplayRow{Version: "3", Value: "of 3"})
	if _, err := s.Store.SetReplay(s.ctx, s.DB, "3", outbox.ReplayRow{Name: "r", Version: "4", Value: "late"}, nil); err != nil {
		s.t.Fatal(err)
	}
}

func replaySteps(s *storeSuite) {
	there := s.insertedAs(outbox.StatusRetry, "node-1/1")
	fresh := s.events(3)
	fresh[1].Headers = map[string]string{outbox.HeaderListener: "mail", outbox.HeaderEventID: "e-1", "k": "v"}
	fresh[2].AvailableAt = fresh[2].OccurredAt.Add(time.Hour)
	refused := s.event(0)
	s.setsReplay("", outbox.ReplayRow{Name: "r", Version: "1", Value: "one"})
	if s.setsReplay("0", outbox.ReplayRow{Name: "r", Version: "2", Value: "two"}, refused) {
		s.t.Fatal("a version is replaced that the row does not have")
	}
	s.hasRow("of a step that is not made", refused.EventID, false)
	if !s.setsReplay("1", outbox.ReplayRow{Name: "r", Version: "2", Value: "two"}, append([]outbox.Envelope{there.Envelope}, fresh...)...) {
		s.t.Fatal("the step is not made")
	}
	s.sameReplays("after the step", outbox.ReplayRow{Version: "2", Value: "two"})
	s.unchanged("row that was there", there)
	for _, env := range fresh {
		s.sameRow("added row", env.EventID, RawRow{CreatedAt: env.OccurredAt, AvailableAt: env.AvailableAt})
	}
	b := s.poll(outbox.PollQuery{Now: suiteTime.Add(2 * later), Limit: 10})
	for i := range b.Envelopes {
		s.sameEnvelope("added event", b.Envelopes[i], fresh[i], 0)
	}
	s.count("added events that are due", len(b.Envelopes), len(fresh))
}

func replayPace(s *storeSuite) {
	s.setsReplay("", outbox.ReplayRow{Name: "r", Version: "1", Value: "one"})
	if next := s.replayRows()[0].NextAt; !next.IsZero() {
		s.t.Fatalf("NextAt is %s before a step added rows", next)
	}
	before := s.now()
	if !s.setsReplay("1", outbox.ReplayRow{Name: "r", Version: "2", Value: "two"}, s.event(0)) {
		s.t.Fatal("the first step is not made")
	}
	next := s.replayRows()[0].NextAt
	s.duringCall("NextAt, a second before", next.Add(-time.Second), before)
	early := s.event(0)
	if s.setsReplay("2", outbox.ReplayRow{Name: "r", Version: "early", Value: "early"}, early) {
		if now := s.now(); now.Before(next) {
			s.t.Fatalf("a step adds rows at %s, before NextAt %s", now, next)
		}
		s.t.Skip("the machine was too slow to make a second step within a second")
	}
	s.hasRow("of a step that came too early", early.EventID, false)
	if !s.setsReplay("2", outbox.ReplayRow{Name: "r", Version: "3", Value: "three"}) {
		s.t.Fatal("a step without rows has to wait")
	}
	if at := s.replayRows()[0].NextAt; !at.Equal(next) {
		s.t.Fatalf("a step without rows changed NextAt from %s to %s", next, at)
	}
	for !s.setsReplay("3", outbox.ReplayRow{Name: "r", Version: "4", Value: "four"}, early) { // until a second is over
		if s.now().After(next.Add(time.Minute)) {
			s.t.Fatal("no step adds rows after NextAt")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if now := s.now(); now.Before(next.Add(-clockSlack)) {
		s.t.Fatalf("a step added rows at %s, before %s", now, next)
	}
	s.hasRow("after NextAt", early.EventID, true)
}

func replayRace(s *storeSuite) {
	const callers = 6
	was := "1"
	s.setsReplay("", outbox.ReplayRow{Name: "r", Version: was, Value: "{}"})
	var (
		wg    sync.WaitGroup
		start = make(chan struct{})
		set   [callers]bool
		errs  [callers]error
		envs  = s.events(callers)
	)
	for i := range callers {
		wg.Go(func() {
			<-start
			next := outbox.ReplayRow{Name: "r", Version: callerName(i), Value: fmt.Sprint(i)}
			set[i], errs[i] = s.Store.SetReplay(s.ctx, s.DB, was, next, envs[i:i+1])
		})
	}
	close(start)
	wg.Wait()
	made := 0
	for i := range callers {
		s.ok("SetReplay", errs[i])
		s.hasRow("of caller "+callerName(i), envs[i].EventID, set[i])
		if set[i] {
			made++
			s.sameReplays("the winner's", outbox.ReplayRow{Version: callerName(i), Value: fmt.Sprint(i)})
		}
	}
	s.count("steps that are made", made, 1)
}

// delivered adds events that became DONE at these times after suiteTime.
func (s *storeSuite) delivered(at ...time.Duration) []outbox.Envelope {
	s.t.Helper()
	envs := s.events(len(at))
	s.insert(envs...)
	for i, env := range envs {
		s.edit(env.EventID, func(row *RawRow) { row.Status, row.DoneAt = outbox.StatusDone, suiteTime.Add(at[i]) })
	}
	return envs
}

func (s *storeSuite) deliveredQuery() outbox.DeliveredQuery {
	return outbox.DeliveredQuery{
		AggregateType: outbox.Global, EventTypes: []outbox.EventType{"Other", "Happened"},
		AfterDoneAt: suiteTime, Until: suiteTime.Add(later), Look: 1000, Limit: 1000,
	}
}

func (s *storeSuite) readsDelivered(q outbox.DeliveredQuery) outbox.Delivered {
	s.t.Helper()
	found, err := s.Store.Delivered(s.ctx, s.DB, q)
	s.ok("Delivered", err)
	if len(found.Events)+found.Unreadable > q.Limit || found.Looked > q.Look {
		s.t.Fatalf("%d events and %d looked at, of %+v", len(found.Events), found.Looked, q)
	}
	return found
}

func deliveredPages(s *storeSuite) {
	const us = time.Microsecond
	envs := s.delivered(0, us, us, us, us, 2*us, 3*us, 3*us, time.Second)
	s.delivered(-us, later, later+us) // before and behind
	for _, tt := range []struct{ look, limit int }{{1, 1}, {2, 5}, {3, 2}, {4, 4}, {9, 9}, {100, 100}, {100, 3}} {
		q := s.deliveredQuery()
		q.Look, q.Limit = tt.look, tt.limit
		var ids []string
		looked := 0
		for range 20 {
			found := s.readsDelivered(q)
			for i := range found.Events {
				s.sameEnvelope("delivered event", found.Events[i], envs[len(ids)], 0)
				ids = append(ids, found.Events[i].EventID)
			}
			looked += found.Looked
			if q.AfterDoneAt, q.AfterEventID = found.DoneAt, found.EventID; found.End {
				break
			}
		}
		s.sameIDs(fmt.Sprintf("pages of %+v", tt), ids, idsOf(envs))
		s.count("rows looked at", looked, len(envs))
		if found := s.readsDelivered(q); found.Looked > 0 || !found.End || !found.DoneAt.Equal(q.AfterDoneAt) || found.EventID != q.AfterEventID {
			s.t.Fatalf("behind the last page: %+v", found)
		}
	}
}

func deliveredChosen(s *storeSuite) {
	envs := s.events(9)
	envs[1].EventType = "Other"
	envs[2].EventType = "Unknown"
	envs[3].AggregateType = "Order"
	envs[4].AggregateID, envs[4].TenantID = "1", "t"
	envs[5].AggregateID = "1"
	envs[6].Headers = map[string]string{outbox.HeaderListener: "mail", outbox.HeaderEventID: "e-1"}
	s.insert(envs...)
	for i, env := range envs {
		s.edit(env.EventID, func(row *RawRow) {
			row.Status, row.DoneAt = outbox.StatusDone, suiteTime.Add(time.Duration(i)*time.Second)
			if i == 7 {
				row.LockedBy, row.LockedAt = outbox.DeletedBy+"01", suiteTime
			}
			if i == 8 {
				row.Status = outbox.StatusDead
			}
		})
	}
	s.insertedAs(outbox.StatusNew, "")
	for _, tt := range []struct {
		name   string
		change func(q *outbox.DeliveredQuery)
		want   []int
	}{
		{"two types", func(*outbox.DeliveredQuery) {}, []int{0, 1, 4, 5}},
		{"one type", func(q *outbox.DeliveredQuery) { q.EventTypes = []outbox.EventType{"Other"} }, []int{1}},
		{"an aggregate type", func(q *outbox.DeliveredQuery) { q.AggregateType = "Order" }, []int{3}},
		{"an aggregate", func(q *outbox.DeliveredQuery) { q.AggregateID = "1" }, []int{4, 5}},
		{"a tenant", func(q *outbox.DeliveredQuery) { q.TenantID = "t" }, []int{4}},
		{"a time", func(q *outbox.DeliveredQuery) {
			q.AfterDoneAt, q.Until = suiteTime.Add(time.Second), suiteTime.Add(4*time.Second)
		}, []int{1}},
	} {
		q := s.deliveredQuery()
		tt.change(&q)
		var want []string
		for _, i := range tt.want {
			want = append(want, envs[i].EventID)
		}
		found := s.readsDelivered(q)
		s.sameIDs(tt.name, idsOf(found.Events), want)
		if !found.End {
			s.t.Fatalf("%s: not at the end", tt.name)
		}
	}
}

func deliveredSpoilt(s *storeSuite) {
	if len(s.Spoil) == 0 {
		s.t.Skip("the harness has no Spoil: this store cannot hold a row that does not decode")
	}
	names := slices.Sorted(maps.Keys(s.Spoil))
	at := make([]time.Duration, 2*len(names))
	for i := range at {
		at[i] = time.Duration(i) * time.Second
	}
	envs := s.delivered(at...)
	var good []string
	for i, name := range names {
		s.Spoil[name](s.t, envs[2*i].EventID)
		good = append(good, envs[2*i+1].EventID)
	}
	for _, n := range []int{1, 3, 1000} {
		q := s.deliveredQuery()
		q.Look, q.Limit = n, n
		var ids []string
		unreadable, ended := 0, false
		for range 4 * len(envs) {
			found := s.readsDelivered(q)
			ids, unreadable = append(ids, idsOf(found.Events)...), unreadable+found.Unreadable
			if q.AfterDoneAt, q.AfterEventID = found.DoneAt, found.EventID; found.End {
				ended = true
				break
			}
		}
		if !ended {
			s.t.Fatalf("pages of %d do not get to the end", n)
		}
		for _, id := range good {
			if !slices.Contains(ids, id) {
				s.t.Fatalf("pages of %d leave out event %s, whose row can be read", n, id)
			}
		}
		if unreadable > len(names) {
			s.t.Fatalf("%d events cannot be read, of %d that were spoilt", unreadable, len(names))
		}
	}
}

func deliveredPurged(s *storeSuite) {
	envs := s.delivered(0, time.Second, 2*time.Second, 3*time.Second, 4*time.Second)
	q := s.deliveredQuery()
	q.Limit = 2
	found := s.readsDelivered(q)
	s.sameIDs("the first page", idsOf(found.Events), idsOf(envs[:2]))
	purged, err := s.Store.Purge(s.ctx, s.DB, outbox.PurgeQuery{Before: suiteTime.Add(3 * time.Second), Status: outbox.StatusDone, Limit: 100})
	s.ok("Purge", err)
	s.count("purged rows", purged.Rows, 3)
	q.AfterDoneAt, q.AfterEventID = found.DoneAt, found.EventID
	s.sameIDs("behind rows that were purged", idsOf(s.readsDelivered(q).Events), idsOf(envs[3:]))
}

func deliveredLarge(s *storeSuite) {
	envs := s.events(4)
	for i := range envs {
		envs[i].Payload = outbox.RawJSON(`"` + strings.Repeat("x", 1_000_000) + `"`)
	}
	s.insert(envs...)
	for i, env := range envs {
		s.edit(env.EventID, func(row *RawRow) { row.Status, row.DoneAt = outbox.StatusDone, suiteTime.Add(time.Duration(i)) })
	}
	q := s.deliveredQuery()
	q.Until = suiteTime.Add(later)
	var ids []string
	for range 10 {
		found := s.readsDelivered(q)
		ids = append(ids, idsOf(found.Events)...)
		if q.AfterDoneAt, q.AfterEventID = found.DoneAt, found.EventID; found.End {
			break
		}
	}
	s.sameIDs("large events", ids, idsOf(envs))
}

func addedRows(s *storeSuite) {
	count := func(untried, failed int, lastError string, ids ...string) {
		s.t.Helper()
		added, err := s.Store.Added(s.ctx, s.DB, ids)
		s.ok("Added", err)
		if want := (outbox.AddedRows{Untried: untried, Failed: failed, LastError: lastError}); added != want {
			s.t.Fatalf("of the added rows: %+v, want %+v", added, want)
		}
	}
	count(0, 0, "")
	count(0, 0, "", "unknown")
	fresh, leased := s.insertedAs(outbox.StatusNew, ""), s.insertedAs(outbox.StatusNew, "node-1/1")
	failed, done, dead := s.insertedAs(outbox.StatusRetry, ""), s.insertedAs(outbox.StatusDone, ""), s.insertedAs(outbox.StatusDead, "")
	deferred, taken := s.insertedAs(outbox.StatusNew, ""), s.insertedAs(outbox.StatusNew, "")
	s.edit(deferred.EventID, func(row *RawRow) { row.AvailableAt, row.Status = row.AvailableAt.Add(time.Hour), outbox.StatusRetry })
	s.edit(taken.EventID, func(row *RawRow) { row.Attempts = 1 })
	s.edit(failed.EventID, func(row *RawRow) { row.LastError = "é🎉 refused" })
	s.edit(dead.EventID, func(row *RawRow) { row.LastError = "" })
	count(3, 2, "é🎉 refused", fresh.EventID, leased.EventID, failed.EventID, done.EventID, dead.EventID, deferred.EventID, taken.EventID, "unknown")
	count(1, 0, "", fresh.EventID)
	count(0, 1, "", dead.EventID)
	many := s.events(1200)
	s.insert(many...)
	count(1200, 1, "é🎉 refused", append(idsOf(many), failed.EventID)...)
}
