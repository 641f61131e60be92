package conformance

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var pauseTests = []storeTest{
	{"APauseIsKeptUntilItIsResumed", pauseKept},
	{"APauseReplacesThePauseBefore", pauseReplaces},
	{"AnAutomaticPauseReplacesOnlyAnEarlierAutomaticPause", pauseAutomatically},
	{"APauseThatEndedIsOver", pauseEnds},
	{"KindsAreToldApart", pauseKinds},
	{"KeysAreToldApart", pauseKeys},
	{"AnAutomaticPauseOfAKeyReplacesOnlyAnEarlierAutomaticPause", pauseKeyAutomatically},
	{"ManyMayPauseAtOnce", pauseConcurrently},
	{"TheLatestOfManyAutomaticPausesCounts", pauseAutomaticallyAtOnce},
}

func (s *storeSuite) pauses(pause outbox.Pause) {
	s.t.Helper()
	s.ok("Pause", s.Store.Pause(s.ctx, s.DB, pause))
}

func (s *storeSuite) resumes(kind outbox.EventKind) {
	s.t.Helper()
	s.ok("Resume", s.Store.Resume(s.ctx, s.DB, kind, ""))
}

func (s *storeSuite) resumesKey(kind outbox.EventKind, aggregateID string) {
	s.t.Helper()
	s.ok("Resume", s.Store.Resume(s.ctx, s.DB, kind, aggregateID))
}

// paused compares the pauses with the expected pauses, in the order of their kinds.
func (s *storeSuite) paused(want ...outbox.Pause) {
	s.t.Helper()
	got, err := s.Store.Paused(s.ctx, s.DB)
	s.ok("Paused", err)
	byKind := func(a, b outbox.Pause) int {
		return cmp.Or(strings.Compare(a.Kind.String(), b.Kind.String()), strings.Compare(a.AggregateID, b.AggregateID))
	}
	slices.SortFunc(got, byKind)
	slices.SortFunc(want, byKind)
	if !slices.EqualFunc(got, want, samePause) {
		s.t.Fatalf("paused:\n got %+v\nwant %+v", got, want)
	}
}

func samePause(a, b outbox.Pause) bool {
	return a.Kind == b.Kind && a.AggregateID == b.AggregateID && a.Since.Equal(b.Since) && a.Until.Equal(b.Until) && a.Reason == b.Reason && a.By == b.By && a.Automatic == b.Automatic
}

// pausedKind is the kind that the tests pause.
var pausedKind = outbox.EventKind{AggregateType: "order", EventType: "Paid"}

func pauseKept(s *storeSuite) {
	pause := outbox.Pause{Kind: pausedKind, Since: suiteTime, Until: s.now().Add(time.Hour), Reason: `Störung, "Ticket" 4711'; --`, By: "Änn"}
	s.paused()
	s.resumes(pausedKind) // nothing there yet
	s.holds("node-1", time.Hour)
	s.pauses(pause)
	s.paused(pause)
	s.holds("node-2", time.Hour)
	s.paused(pause)
	s.resumes(pausedKind)
	s.resumes(pausedKind)
	s.paused()
}

func pauseReplaces(s *storeSuite) {
	soon := s.now().Add(time.Hour)
	for _, before := range []outbox.Pause{
		{Since: suiteTime},
		{Since: suiteTime, Until: soon.Add(time.Hour), Reason: "deploy", By: "ann"},
		{Since: suiteTime, Until: soon.Add(time.Hour), Reason: "down", By: "node-1", Automatic: true},
	} {
		for _, after := range []outbox.Pause{
			{Since: suiteTime.Add(time.Hour)},
			{Since: suiteTime.Add(time.Hour), Until: soon, Reason: "provider", By: "bob"},
		} {
			before.Kind, after.Kind = pausedKind, pausedKind
			s.pauses(before)
			s.paused(before)
			s.pauses(after)
			s.paused(after)
			s.resumes(pausedKind)
		}
	}
}

func pauseAutomatically(s *storeSuite) {
	soon := s.now().Add(time.Hour)
	asked := func(until time.Time, by string) outbox.Pause {
		return outbox.Pause{Kind: pausedKind, Since: suiteTime.Add(time.Minute), Until: until, Reason: "down", By: by, Automatic: true}
	}
	s.pauses(asked(soon, "node-1"))
	s.paused(asked(soon, "node-1"))
	s.pauses(asked(soon.Add(-time.Minute), "node-2"))
	s.paused(asked(soon, "node-1"))
	s.pauses(asked(soon.Add(time.Minute), "node-3"))
	s.paused(asked(soon.Add(time.Minute), "node-3"))
	for _, operators := range []outbox.Pause{{Kind: pausedKind, Since: suiteTime}, {Kind: pausedKind, Since: suiteTime, Until: soon, By: "ann"}} {
		s.pauses(operators)
		s.pauses(asked(soon.Add(time.Hour), "node-1"))
		s.paused(operators)
	}
}

func pauseEnds(s *storeSuite) {
	was, soon := s.now().Add(-time.Second), s.now().Add(time.Hour)
	for _, automatic := range []bool{false, true} {
		for _, next := range []bool{false, true} {
			s.pauses(outbox.Pause{Kind: pausedKind, Since: suiteTime, Until: was, Reason: "over", Automatic: automatic})
			s.paused()
			again := outbox.Pause{Kind: pausedKind, Since: suiteTime.Add(time.Hour), Until: soon, By: "ann", Automatic: next}
			s.pauses(again)
			s.paused(again)
			s.resumes(pausedKind)
		}
	}
}

func pauseKinds(s *storeSuite) {
	var want []outbox.Pause
	for _, kind := range []outbox.EventKind{
		{AggregateType: "order", EventType: "Paid"},
		{AggregateType: "order", EventType: "paid"},
		{AggregateType: "order", EventType: "Paid "},
		{AggregateType: "orderP", EventType: "aid"},
		{AggregateType: "Zürich", EventType: `"quoted"\'; --`},
		{AggregateType: outbox.AggregateType(strings.Repeat("é", 64)), EventType: outbox.EventType(strings.Repeat("ü", 128))},
		{AggregateType: outbox.AggregateType(strings.Repeat("é", 64)), EventType: outbox.EventType(strings.Repeat("ü", 127) + "u")},
	} {
		want = append(want, outbox.Pause{Kind: kind, Since: suiteTime})
		s.pauses(outbox.Pause{Kind: kind, Since: suiteTime})
	}
	s.paused(want...)
	s.resumes(want[0].Kind)
	s.paused(want[1:]...)
}

func pauseKeys(s *storeSuite) {
	until := s.now().Add(time.Hour)
	want := []outbox.Pause{{Kind: pausedKind, Since: suiteTime, Until: until}}
	s.pauses(want[0])
	for _, kind := range []outbox.EventKind{pausedKind, {AggregateType: "orderP", EventType: "aid"}, {AggregateType: "order", EventType: "paid"}} {
		for _, id := range []string{"1", "a", "A", "a ", `"quoted"\'; --`, strings.Repeat("é", outbox.MaxAggregateIDLength)} {
			pause := outbox.Pause{Kind: kind, AggregateID: id, Since: suiteTime, Until: until, Reason: "down", By: "node-1", Automatic: id == "a"}
			want = append(want, pause)
			s.pauses(pause)
		}
	}
	over := outbox.Pause{Kind: pausedKind, AggregateID: "over", Since: suiteTime, Until: s.now().Add(-time.Second)}
	s.pauses(over)
	s.paused(slices.Clone(want)...)
	s.resumesKey(pausedKind, "b") // is not paused
	s.resumesKey(pausedKind, "1")
	s.paused(slices.Delete(slices.Clone(want), 1, 2)...)
	s.resumes(pausedKind) // the pauses of its keys stay
	s.paused(slices.Delete(slices.Clone(want), 0, 2)...)
}

func pauseKeyAutomatically(s *storeSuite) {
	soon := s.now().Add(time.Hour)
	pause := func(until time.Time, automatic bool) outbox.Pause {
		return outbox.Pause{Kind: pausedKind, AggregateID: "1", Since: suiteTime, Until: until, Automatic: automatic}
	}
	s.pauses(pause(soon, true))
	s.pauses(pause(soon.Add(-time.Minute), true))
	s.paused(pause(soon, true))
	s.pauses(pause(soon.Add(time.Minute), true))
	s.paused(pause(soon.Add(time.Minute), true))
	s.pauses(pause(soon, false))
	s.pauses(pause(soon.Add(time.Minute), true))
	s.paused(pause(soon, false))
}

func pauseConcurrently(s *storeSuite) {
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = s.Store.Pause(s.ctx, s.DB, outbox.Pause{Kind: pausedKind, Since: suiteTime}) })
	}
	wg.Wait()
	for _, err := range errs {
		s.ok("Pause", err)
	}
	s.paused(outbox.Pause{Kind: pausedKind, Since: suiteTime})
}

func pauseAutomaticallyAtOnce(s *storeSuite) {
	soon := s.now().Add(time.Hour)
	errs := make([]error, 8)
	var wg sync.WaitGroup
	asked := func(i int) outbox.Pause {
		return outbox.Pause{Kind: pausedKind, Since: suiteTime, Until: soon.Add(time.Duration(i) * time.Minute), Automatic: true}
	}
	for i := range errs {
		wg.Go(func() { errs[i] = s.Store.Pause(s.ctx, s.DB, asked(i)) })
	}
	wg.Wait()
	for _, err := range errs {
		s.ok("Pause", err)
	}
	s.paused(asked(len(errs) - 1))
}
