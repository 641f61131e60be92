package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var errorTests = []storeTest{
	{"EndedContextStopsEveryCallAndTheErrorSaysWhere", func(s *storeSuite) {
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		env := s.insertedAs(outbox.StatusRetry, "node-1/1")
		dead := s.died(time.Second, nil)
		deadRow := s.row(dead.EventID)
		for name, err := range map[string]error{
			"Check":        s.Store.Check(ctx, s.DB, true),
			"Ranges":       errorOf(s.Store.Ranges(ctx, s.DB)),
			"SetRanges":    errorOf(s.Store.SetRanges(ctx, s.DB, "", suiteTime, outbox.Ranges{Version: "node-1/1"})),
			"Shares":       errorOf(s.Store.Shares(ctx, s.DB, outbox.EventKind{EventType: "T"})),
			"SetShares":    errorOf(s.Store.SetShares(ctx, s.DB, outbox.EventKind{EventType: "T"}, "", outbox.Shares{Version: "node-1/1"})),
			"Reach":        errorOf(s.Store.Reach(ctx, s.DB, outbox.PollQuery{Now: suiteTime, Limit: 10})),
			"Poll":         errorOf(s.Store.Poll(ctx, s.DB, outbox.PollQuery{Now: suiteTime, Limit: 10})),
			"Claim":        errorOf(s.Store.Claim(ctx, s.DB, outbox.ClaimQuery{Now: suiteTime, Limit: 10, Lease: "node-2/1", LeaseDuration: time.Nanosecond})),
			"Leased":       errorOf(s.Store.Leased(ctx, s.DB, []string{"node-1/1"})),
			"NextDue":      errorOf(s.Store.NextDue(ctx, s.DB, suiteTime)),
			"Purge":        errorOf(s.Store.Purge(ctx, s.DB, outbox.PurgeQuery{Before: suiteTime.Add(later), ByAge: true, Limit: 10})),
			"Stats":        errorOf(s.Store.Stats(ctx, s.DB, suiteTime, nil)),
			"DueKinds":     errorOf(s.Store.DueKinds(ctx, s.DB, outbox.DueKindsQuery{Now: suiteTime})),
			"QueryDead":    errorOf(s.Store.QueryDead(ctx, s.DB, outbox.DeadRowsQuery{Limit: 10})),
			"CountDead":    errorOf(s.Store.CountDead(ctx, s.DB, outbox.DeadFilter{})),
			"RestoreDead":  errorOf(s.Store.RestoreDead(ctx, s.DB, outbox.DeletedQuery{By: outbox.DeletedBy, Limit: 10})),
			"CountDeleted": errorOf(s.Store.CountDeleted(ctx, s.DB, outbox.DeletedQuery{By: outbox.DeletedBy, Limit: 10})),
		} {
			s.cancelled(name, err, s.Table)
		}
		// These methods concern a single event, which the error names too.
		s.cancelled("Mark", errorOf(s.Store.Mark(ctx, s.DB, outbox.OutcomeDone, []outbox.Mark{{EventID: env.EventID}})), s.Table, env.EventID)
		s.cancelled("Renew", s.Store.Renew(ctx, s.DB, []outbox.Lease{{EventID: env.EventID, Name: "node-1/1"}}), s.Table, env.EventID)
		for name, err := range map[string]error{
			"GetDead":    errorOf(s.Store.GetDead(ctx, s.DB, dead.EventID)),
			"ReplayDead": errorOf(s.Store.ReplayDead(ctx, s.DB, []string{dead.EventID}, suiteTime, outbox.StatusNew)),
			"DeleteDead": errorOf(s.Store.DeleteDead(ctx, s.DB, []string{dead.EventID}, "", time.Time{})),
		} {
			s.cancelled(name, err, s.Table, dead.EventID)
		}
		if _, err := s.Store.Now(ctx, s.DB); err != nil && !errors.Is(err, context.Canceled) {
			s.t.Errorf("Now: %v", err)
		}
		s.unchanged("row afterwards", env)
		s.sameRow("dead row afterwards", dead.EventID, deadRow)
	}},
	{"NowIsInUTCAndMicroseconds", func(s *storeSuite) {
		first := s.now()
		if first.Location() != time.UTC || first.Nanosecond()%1000 != 0 {
			s.t.Fatalf("Now is %v, want UTC and whole microseconds", first)
		}
		if age := time.Since(first).Abs(); age > time.Hour {
			s.t.Fatalf("Now is %v, which is %v from this machine's clock", first, age)
		}
		s.eventually("Now goes on", func() bool { return s.now().After(first) })
	}},
}

// errorOf is the error of a call that returns a value too.
func errorOf[T any](_ T, err error) error { return err }

// cancelled checks an error: the call's context had ended, and the text has all
// parts.
func (s *storeSuite) cancelled(call string, err error, parts ...string) {
	s.t.Helper()
	if !errors.Is(err, context.Canceled) {
		s.t.Errorf("%s: got %v, want context.Canceled", call, err)
		return
	}
	s.mentions(err, parts...)
}
