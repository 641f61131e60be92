package conformance

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var pauseTests = []storeTest{
	{"APauseIsKeptUntilItIsResumed", pauseKept},
	{"APauseThatIsThereStaysAsItIs", pauseTwice},
	{"KindsAreToldApart", pauseKinds},
	{"ManyMayPauseAtOnce", pauseConcurrently},
}

func (s *storeSuite) pauses(kind outbox.EventKind, since time.Time) {
	s.t.Helper()
	s.ok("Pause", s.Store.Pause(s.ctx, s.DB, outbox.Pause{Kind: kind, Since: since}))
}

func (s *storeSuite) resumes(kind outbox.EventKind) {
	s.t.Helper()
	s.ok("Resume", s.Store.Resume(s.ctx, s.DB, kind))
}

// paused compares the pauses with the expected pauses, in the order of their kinds.
func (s *storeSuite) paused(want ...outbox.Pause) {
	s.t.Helper()
	got, err := s.Store.Paused(s.ctx, s.DB)
	s.ok("Paused", err)
	byKind := func(a, b outbox.Pause) int { return strings.Compare(a.Kind.String(), b.Kind.String()) }
	slices.SortFunc(got, byKind)
	slices.SortFunc(want, byKind)
	if !slices.EqualFunc(got, want, func(a, b outbox.Pause) bool { return a.Kind == b.Kind && a.Since.Equal(b.Since) }) {
		s.t.Fatalf("paused:\n got %+v\nwant %+v", got, want)
	}
}

func pauseKept(s *storeSuite) {
	kind := outbox.EventKind{AggregateType: "order", EventType: "Paid"}
	s.paused()
	s.resumes(kind) // nothing there yet
	s.holds("node-1", time.Hour)
	s.pauses(kind, suiteTime)
	s.paused(outbox.Pause{Kind: kind, Since: suiteTime})
	s.holds("node-2", time.Hour)
	s.paused(outbox.Pause{Kind: kind, Since: suiteTime})
	s.resumes(kind)
	s.resumes(kind)
	s.paused()
}

func pauseTwice(s *storeSuite) {
	kind := outbox.EventKind{AggregateType: outbox.Global, EventType: "Paid"}
	s.pauses(kind, suiteTime)
	s.pauses(kind, suiteTime.Add(time.Hour))
	s.paused(outbox.Pause{Kind: kind, Since: suiteTime})
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
		s.pauses(kind, suiteTime)
	}
	s.paused(want...)
	s.resumes(want[0].Kind)
	s.paused(want[1:]...)
}

func pauseConcurrently(s *storeSuite) {
	kind := outbox.EventKind{AggregateType: "order", EventType: "Paid"}
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = s.Store.Pause(s.ctx, s.DB, outbox.Pause{Kind: kind, Since: suiteTime}) })
	}
	wg.Wait()
	for _, err := range errs {
		s.ok("Pause", err)
	}
	s.paused(outbox.Pause{Kind: kind, Since: suiteTime})
}
