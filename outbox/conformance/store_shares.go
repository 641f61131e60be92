package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// sharesTests: a kind's shares are replaced as the ranges are, without a deadline.
var sharesTests = []storeTest{
	{"AreReadAsTheyWereSet", func(s *storeSuite) {
		kind, was := outbox.EventKind{AggregateType: `Order 'é🎉"\`, EventType: "T"}, ""
		for i, value := range []string{"", `{"m":[{"n":"é🎉 \"1\" \\ '"}]}`, strings.Repeat("x", 60_000), ""} {
			next := outbox.Shares{Version: fmt.Sprintf("node \"1\"/%d é🎉", i), Value: value}
			if !s.setsShares(kind, was, next) {
				s.t.Fatalf("a value of %d bytes is not set", len(value))
			}
			before := s.now()
			got := s.shares(kind)
			s.duringCall("Now", got.Now, before)
			if got.Now.Location() != time.UTC || got.Now.Nanosecond()%1000 != 0 {
				s.t.Fatalf("Now is %v, want UTC and whole microseconds", got.Now)
			}
			s.sameShares(kind, next)
			was = next.Version
		}
	}},
	{"AVersionIsReplacedOnce", func(s *storeSuite) {
		kind, other := outbox.EventKind{AggregateType: "Order", EventType: "T"}, outbox.EventKind{AggregateType: outbox.Global, EventType: "T"}
		var now outbox.Shares
		s.sameShares(kind, now)
		for _, tt := range []struct {
			was, next string
			want      bool
		}{
			{"node-0/1", "node-2/1", false}, // no call has set this version
			{"", "node-1/1", true},
			{"", "node-1/1", false}, // late
			{"", "node-2/1", false},
			{"node-1/1", "node-2/1", true},
			{"node-1/1", "node-2/1", false},
			{"node-1/1", "node-3/1", false}, // two calls that read the same version
			{"", "node-3/1", false},
			{"node-2/1", "node-3/1", true},
			{"node-1/1", "node-2/1", false},
		} {
			next := outbox.Shares{Version: tt.next, Value: "of " + tt.next}
			if set := s.setsShares(kind, tt.was, next); set != tt.want {
				s.t.Fatalf("setting %s after %q: %t, want %t", tt.next, tt.was, set, tt.want)
			}
			if tt.want {
				now = next
			}
			s.sameShares(kind, now)
		}
		s.sameShares(other, outbox.Shares{})
		if ranges := s.ranges(); ranges.Version != "" {
			s.t.Fatalf("the ranges were set too: %+v", ranges)
		}
	}},
	{"AreReadOfAllKinds", func(s *storeSuite) {
		read := func() (values []string) {
			s.t.Helper()
			before := s.now()
			all, err := s.Store.AllShares(s.ctx, s.DB)
			s.ok("AllShares", err)
			for _, shares := range all {
				s.duringCall("Now", shares.Now, before)
				values = append(values, shares.Version+" "+shares.Value)
			}
			slices.Sort(values)
			return values
		}
		if got := read(); len(got) != 0 {
			s.t.Fatalf("no shares are set, got %q", got)
		}
		a, b := outbox.EventKind{AggregateType: "Order", EventType: "T"}, outbox.EventKind{AggregateType: outbox.Global, EventType: "T"}
		s.shares(a) // reading sets nothing
		s.setsShares(a, "", outbox.Shares{Version: "node-1/1", Value: "é"})
		s.setsShares(b, "", outbox.Shares{Version: "node-1/2", Value: ""})
		if got, want := read(), []string{"node-1/1 é", "node-1/2 "}; !slices.Equal(got, want) {
			s.t.Fatalf("the shares of all kinds: got %q, want %q", got, want)
		}
	}},
	{"OfManyAtOnceOneSets", func(s *storeSuite) {
		const callers = 8
		kind, was := outbox.EventKind{AggregateType: "Order", EventType: "T"}, ""
		for round := range 6 {
			var (
				wg    sync.WaitGroup
				start = make(chan struct{})
				set   [callers]bool
				errs  [callers]error
				next  [callers]outbox.Shares
			)
			for i := range callers {
				next[i] = outbox.Shares{Version: fmt.Sprintf("%s/%d", callerName(i), round), Value: fmt.Sprint(i)}
				wg.Go(func() {
					<-start
					set[i], errs[i] = s.Store.SetShares(s.ctx, s.DB, kind, was, next[i])
				})
			}
			close(start)
			wg.Wait()
			var winners []int
			for i := range callers {
				s.ok("SetShares", errs[i])
				if set[i] {
					winners = append(winners, i)
				}
			}
			if len(winners) != 1 {
				s.t.Fatalf("the shares are set by %d callers, want one: %v", len(winners), winners)
			}
			s.sameShares(kind, next[winners[0]])
			was = next[winners[0]].Version
		}
	}},
}

// shares reads the shares of a kind.
func (s *storeSuite) shares(kind outbox.EventKind) outbox.Shares {
	s.t.Helper()
	shares, err := s.Store.Shares(s.ctx, s.DB, kind)
	s.ok("Shares", err)
	return shares
}

// setsShares sets the shares of a kind and reports whether they were set.
func (s *storeSuite) setsShares(kind outbox.EventKind, was string, next outbox.Shares) bool {
	s.t.Helper()
	set, err := s.Store.SetShares(s.ctx, s.DB, kind, was, next)
	s.ok("SetShares", err)
	return set
}

// sameShares compares the shares of a kind, apart from Now.
func (s *storeSuite) sameShares(kind outbox.EventKind, want outbox.Shares) {
	s.t.Helper()
	if got := s.shares(kind); got.Version != want.Version || got.Value != want.Value {
		s.t.Fatalf("the shares of %s:\n got %+v\nwant %+v", kind, got, want)
	}
}
