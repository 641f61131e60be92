package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var errorTests = []storeTest{
	{"EndedContextStopsEveryCallAndTheErrorSaysWhere", errorsOfEndedContext},
	{"NowIsInUTCAndMicroseconds", nowIsPlain},
}

func errorsOfEndedContext(s *storeSuite) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	env, row := s.insertedAs(outbox.StatusRetry, "node-1/1")
	dead := s.died(time.Second, nil)
	deadRow := s.row(dead.EventID)
	deadIDs := []string{dead.EventID}
	calls := map[string]func() error{
		"Check":        func() error { return s.Store.Check(ctx, s.DB, true) },
		"ReleaseTable": func() error { return s.Store.ReleaseTable(ctx, s.DB, "node-1") },
		"HoldTable": func() error {
			_, err := s.Store.HoldTable(ctx, s.DB, "node-1", time.Minute)
			return err
		},
		"Poll": func() error {
			_, err := s.Store.Poll(ctx, s.DB, outbox.PollQuery{Now: suiteTime, Limit: 10})
			return err
		},
		"Claim": func() error {
			_, err := s.Store.Claim(ctx, s.DB, outbox.ClaimQuery{Now: suiteTime, Limit: 10, Lease: "node-2/1", LockTimeout: time.Nanosecond})
			return err
		},
		"NextDue": func() error {
			_, err := s.Store.NextDue(ctx, s.DB, suiteTime)
			return err
		},
		"Purge": func() error {
			_, err := s.Store.Purge(ctx, s.DB, outbox.PurgeQuery{Before: suiteTime.Add(later), ByAge: true, Limit: 10})
			return err
		},
		"Stats": func() error {
			_, err := s.Store.Stats(ctx, s.DB, suiteTime)
			return err
		},
		"QueryDead": func() error {
			_, err := s.Store.QueryDead(ctx, s.DB, outbox.DeadQuery{Limit: 10})
			return err
		},
		"CountDead": func() error {
			_, err := s.Store.CountDead(ctx, s.DB, outbox.DeadFilter{})
			return err
		},
	}
	// These concern one event, which the error names too.
	about := map[string]func() error{
		"Mark": func() error {
			_, err := s.Store.Mark(ctx, s.DB, outbox.OutcomeDone, []outbox.Mark{{EventID: env.EventID}})
			return err
		},
		"Renew": func() error {
			return s.Store.Renew(ctx, s.DB, []outbox.Lease{{EventID: env.EventID, Name: "node-1/1"}})
		},
		"GetDead": func() error {
			_, err := s.Store.GetDead(ctx, s.DB, dead.EventID)
			return err
		},
		"ReplayDead": func() error {
			_, err := s.Store.ReplayDead(ctx, s.DB, deadIDs, suiteTime)
			return err
		},
		"DeleteDead": func() error {
			_, err := s.Store.DeleteDead(ctx, s.DB, deadIDs)
			return err
		},
	}
	check := func(name string, call func() error, parts ...string) {
		err := call()
		if !errors.Is(err, context.Canceled) {
			s.t.Errorf("%s: got %v, want context.Canceled", name, err)
			return
		}
		s.mentions(err, parts...)
	}
	for name, call := range calls {
		check(name, call, s.Table)
	}
	for name, call := range about {
		id := env.EventID
		if name == "GetDead" || name == "ReplayDead" || name == "DeleteDead" {
			id = dead.EventID
		}
		check(name, call, s.Table, id)
	}
	if _, err := s.Store.Now(ctx, s.DB); err != nil && !errors.Is(err, context.Canceled) {
		s.t.Errorf("Now: %v", err)
	}
	s.sameRow("row after all that", env.EventID, row)
	s.sameRow("dead row after all that", dead.EventID, deadRow)
}

func nowIsPlain(s *storeSuite) {
	first := s.now()
	if first.Location() != time.UTC || first.Nanosecond()%1000 != 0 {
		s.t.Fatalf("Now is %v, want UTC and whole microseconds", first)
	}
	if age := time.Since(first).Abs(); age > time.Hour {
		s.t.Fatalf("Now is %v, which is %v from this machine's clock", first, age)
	}
	s.eventually("Now goes on", func() bool { return s.now().After(first) })
}
