package conformance

import (
	"strings"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var checkTests = []storeTest{
	{"ATableThatIsRightPasses", func(s *storeSuite) {
		s.ok("Check", s.Store.Check(s.ctx, s.DB, false))
		s.ok("Check for claims", s.Store.Check(s.ctx, s.DB, true))
		s.count("rows", s.pollAt(later).Len(), 0)
	}},
}

var holdTests = []storeTest{
	{"AFreeTableIsTaken", func(s *storeSuite) {
		s.releases("node-1") // nothing there yet
		longest := strings.Repeat("é", 128)
		s.holds(longest, time.Hour, outbox.TableHolder{Owner: longest})
		s.releases(longest)
	}},
	{"TheHolderKeepsItAndAnotherIsRefused", func(s *storeSuite) {
		node1 := outbox.TableHolder{Owner: "node-1"} // the holder, for every caller
		for range 3 {
			s.holds("node-1", time.Hour, node1)
			s.holds("node-2", time.Hour, node1)
			s.holds("node-2", 0, node1)
		}
		s.holds("node-1", time.Millisecond, node1)
		s.expired(time.Millisecond)
		s.holds("node-1", time.Hour, node1) // expired, but still held by node-1
		s.holds("node-2", time.Hour, node1)
	}},
	{"AnExpiredHoldIsTakenOver", func(s *storeSuite) {
		s.holds("node-1", time.Millisecond, outbox.TableHolder{Owner: "node-1"})
		s.expired(time.Millisecond)
		s.holds("node-2", time.Hour, outbox.TableHolder{Owner: "node-2", Died: "node-1"})
		s.holds("node-2", time.Hour, outbox.TableHolder{Owner: "node-2"}) // reported once
		s.holds("node-1", time.Hour, outbox.TableHolder{Owner: "node-2"})
	}},
	{"AReleasedTableIsFree", func(s *storeSuite) {
		s.holds("node-1", time.Hour, outbox.TableHolder{Owner: "node-1"})
		s.releases("node-1")
		s.holds("node-2", time.Hour, outbox.TableHolder{Owner: "node-2"}) // the other did not die
		s.releases("node-2")
		s.releases("node-2")
		s.holds("node-1", time.Hour, outbox.TableHolder{Owner: "node-1"})
	}},
	{"OnlyTheHolderReleases", func(s *storeSuite) {
		s.holds("node-1", time.Hour, outbox.TableHolder{Owner: "node-1"})
		s.releases("node-2")
		s.holds("node-2", time.Hour, outbox.TableHolder{Owner: "node-1"})
	}},
	// For a free table, and for a table whose hold expired.
	{"OfManyAtOnceOneHasIt", func(s *storeSuite) {
		const callers = 6
		died := ""
		for range 5 {
			var (
				wg      sync.WaitGroup
				start   = make(chan struct{})
				answers [callers]outbox.TableHolder
				errs    [callers]error
			)
			for i := range callers {
				wg.Go(func() {
					<-start
					answers[i], errs[i] = s.Store.HoldTable(s.ctx, s.DB, callerName(i), time.Hour)
				})
			}
			close(start)
			wg.Wait()
			var holders []string
			for i := range callers {
				s.ok("HoldTable", errs[i])
				if answers[i].Owner == callerName(i) {
					holders = append(holders, callerName(i))
					if answers[i].Died != died {
						s.t.Fatalf("the holder learns that %q died, want %q", answers[i].Died, died)
					}
				}
			}
			if len(holders) != 1 {
				s.t.Fatalf("the table is held by %q, want one holder", holders)
			}
			held := holders[0]
			for i := range callers {
				if answers[i].Owner != held {
					s.t.Errorf("the answer to %s names the holder %q, want %s", callerName(i), answers[i].Owner, held)
				}
			}
			s.holds(held, time.Millisecond, outbox.TableHolder{Owner: held})
			s.expired(time.Millisecond)
			s.holds("last", time.Millisecond, outbox.TableHolder{Owner: "last", Died: held})
			s.expired(time.Millisecond)
			died = "last"
		}
	}},
}

// holds calls HoldTable for an owner and compares the answer.
func (s *storeSuite) holds(owner string, d time.Duration, want outbox.TableHolder) {
	s.t.Helper()
	got, err := s.Store.HoldTable(s.ctx, s.DB, owner, d)
	s.ok("HoldTable", err)
	if got != want {
		s.t.Fatalf("HoldTable of %s returns %+v, want %+v", owner, got, want)
	}
}

func (s *storeSuite) releases(owner string) {
	s.t.Helper()
	s.ok("ReleaseTable", s.Store.ReleaseTable(s.ctx, s.DB, owner))
}

// expired waits until a hold of the given duration, begun earlier, is over.
func (s *storeSuite) expired(d time.Duration) {
	s.t.Helper()
	end := s.now().Add(d + clockSlack)
	s.eventually("the hold expires", func() bool { return s.now().After(end) })
}

func callerName(i int) string { return "node-" + string(rune('a'+i)) }
