package checker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/outboxkit/outbox-go/proof/checker" //nolint:revive // the tables are of its words
)

// good are histories that break no rule, with the repeats that a fault explains.
var good = []struct {
	name      string
	explained int
	history   *story
}{
	{"nothing happens", 0, tell("multi")},
	{"all goes well", 0, tell("multi").commit("t1", "e1", "m1", "o1").done("a", "e1", "m1/mail", "m1/stock", "o1").closed("a", "")},
	{"a rollback, a savepoint and two unknown ends", 0, tell("multi").
		write("t1", "e1").ended("t1", OpRolledBack).
		write("t2", "e3").add(Record{Op: OpSavepoint, Tx: "t2", Events: events([]string{"e3"})}).commit("t2", "e2").done("a", "e2").
		write("t3", "e4").ended("t3", OpUnknown).
		write("t4", "e5").ended("t4", OpUnknown).stands("t4", "e5").done("a", "e5")},
	{"a writer dies in its COMMIT", 0, tell("multi").write("t1", "e1").ended("t1", OpCommit).fault(Kill, "w", 0).stands("t1", "e1").done("a", "e1")},
	{"done at the last attempt", 0, tell("multi").commit("t1", "e1").fails("a", "e1", 2).done("b", "e1")},
	{"deferrals are not attempts", 0, tell("multi").commit("t1", "e1").try("a", "e1", Later).try("a", "e1", Later).
		try("a", "e1", Later).try("a", "e1", Later).done("a", "e1")},
	{"dead, replayed, done", 0, tell("multi").commit("t1", "e1").fails("a", "e1", 3).replayed("e1").fails("a", "e1", 2).done("a", "e1")},
	{"deleted and restored", 0, tell("multi").commit("t1", "e1").fails("a", "e1", 3).deleted("e1").restored("e1").dead("e1")},
	{"restored and deleted again", 0, tell("multi").commit("t1", "e1").fails("a", "e1", 3).deleted("e1").restored("e1").deleted("e1").noRow("e1")},
	{"a DEAD event of a key is restored after the key went on", 0, tell("by-key").commit("t1", "k1", "k2").fails("a", "k1", 3).deleted("k1").done("a", "k2").restored("k1").dead("k1")},
	{"dead and deleted", 0, tell("multi").commit("t1", "e1").fails("a", "e1", 3).deleted("e1").noRow("e1")},
	{"buried", 0, tell("multi").commit("t1", "e1").try("a", "e1", Buried).row("e1", Row{Status: "DEAD", LastError: "no"})},
	{"deleted when done", 0, tell("multi").promise(func(p *Promise) { p.DeletesDone = true }).commit("t1", "e1").done("a", "e1").noRow("e1")},
	{"a listener has a row of its own", 0, tell("multi").commit("t1", "m1").done("a", "m1/mail").fails("a", "m1/stock", 1).
		done("b", "m1/stock").row("m1/stock", Row{Status: "DONE"})},
	{"a listener's row is dead", 0, tell("multi").commit("t1", "m1").done("a", "m1/mail").fails("a", "m1/stock", 3).dead("m1/stock")},
	{"a DEAD event blocks its key", 0, tell("by-key").commit("t1", "k1", "k2").fails("a", "k1", 3).dead("k1").row("k2", Row{Status: "NEW"})},
	{"a DEAD event is skipped", 0, tell("by-key").promise(func(p *Promise) { p.SkipDead = true }).
		commit("t1", "k1", "k2").fails("a", "k1", 3).dead("k1").done("a", "k2")},
	{"a DEAD event is deleted from its key", 0, tell("by-key").commit("t1", "k1", "k2").fails("a", "k1", 3).deleted("k1").noRow("k1").done("a", "k2")},
	{"a failure in a key", 0, tell("by-key").commit("t1", "k1", "k2").fails("a", "k1", 1).done("a", "k1", "k2")},
	{"a failure in ordered mode", 0, tell("ordered").commit("t1", "k1", "k2").fails("a", "k1", 1).row("k1", Row{Status: "DEAD", Attempts: 1, LastError: "failed"}).done("a", "k2")},

	{"killed within a delivery", 0, tell("multi").commit("t1", "e1").begin("a", "e1").fault(Kill, "a", 0).wait(lease).done("b", "e1")},
	{"killed before the outcome was stored", 1, tell("multi").commit("t1", "e1").done("a", "e1").fault(Kill, "a", 0).wait(lease).done("b", "e1")},
	{"killed in single mode", 1, tell("single").commit("t1", "e1", "e2").done("a", "e1").begin("a", "e2").fault(Kill, "a", 0).wait(lease).done("b", "e1", "e2")},
	{"killed after the listener's own COMMIT", 0, tell("multi").commit("t1", "o1").begin("a", "o1").fault(Kill, "a", 0)},
	{"killed when all was stored", 0, tell("multi").commit("t1", "e1").done("a", "e1").fault(Kill, "a", 0)},
	{"stopped in a delivery", 1, tell("multi").commit("t1", "e1").begin("a", "e1").fault(Stop, "a", 2*lease).wait(lease).done("b", "e1").
		wait(lease).end("a", "e1", Done)},
	{"stopped at the beginning of a delivery", 1, tell("multi").commit("t1", "e1").fault(Stop, "a", 2*lease).wait(lease).done("b", "e1").
		wait(lease).done("a", "e1")},
	{"stopped with the event in the queue, and begun before the process that took over", 1, tell("multi").commit("t1", "e1").fault(Stop, "a", 2*lease).wait(2*lease+step).
		begin("a", "e1").begin("b", "e1").end("a", "e1", Done).end("b", "e1", Done)},
	{"stopped at the beginning, and begun before the process that took over", 1, tell("by-key").commit("t1", "k1").fault(Stop, "a", 2*lease).wait(2*lease+step).
		begin("a", "k1").begin("b", "k1").end("a", "k1", Done).end("b", "k1", Done)},
	{"the network is cut", 1, tell("multi").commit("t1", "e1").fault(Network, "a", 2*lease).done("a", "e1").wait(lease).done("b", "e1")},
	{"the server dies under all", 1, tell("multi").commit("t1", "e1").done("a", "e1").fault(Server, "", lease).wait(2*lease).done("b", "e1")},
	{"a listener is cut off by the shutdown", 1, tell("multi").commit("t1", "m1").fault(Terminate, "a", 0).
		done("a", "m1/mail").try("a", "m1/stock", Dropped).closed("a", "").done("b", "m1/mail", "m1/stock")},
	{"Close says what it did not store", 1, tell("multi").commit("t1", "e1").fault(Terminate, "a", 0).done("a", "e1").
		closed("a", "1 outcome is not stored").wait(lease).done("b", "e1")},
	{"failures that a fault kept from the table", 0, tell("multi").commit("t1", "e1").fails("a", "e1", 1).fault(Kill, "a", 0).wait(lease).
		fails("b", "e1", 3).dead("e1")},
	{"an exhausted event whose process died", 0, tell("single").commit("t1", "e1").fails("a", "e1", 2).begin("a", "e1").fault(Kill, "a", 0).
		row("e1", Row{Status: "DEAD", Attempts: 2, LastError: "no attempts left"})},
	{"a key is repeated after a kill", 2, tell("by-key").commit("t1", "k1", "k2", "k3").done("a", "k1", "k2").fault(Kill, "a", 0).wait(lease).done("b", "k1", "k2", "k3")},
	{"stopped in a key's delivery", 1, tell("by-key").commit("t1", "k1", "k2").begin("a", "k1").fault(Stop, "a", 2*lease).wait(lease).
		done("b", "k1", "k2").wait(lease).end("a", "k1", Done)},
	{"stopped at the beginning of a key's delivery", 1, tell("by-key").commit("t1", "k1", "k2", "k3").fault(Stop, "a", 2*lease).wait(lease).
		done("b", "k1", "k2").wait(lease).done("a", "k1").done("b", "k3")},
	{"a queue is delivered under leases that were lost", 2, tell("multi").promise(func(p *Promise) { p.Workers = 1 }).commit("t1", "e1", "e2").
		fault(Network, "a", 2*lease).wait(lease).done("b", "e1", "e2").wait(lease).done("a", "e1", "e2")},
	{"an event is retried beside a delivery under a lease that was lost", 1, tell("multi").commit("t1", "e1").fault(Stop, "a", 2*lease).wait(lease).fails("b", "e1", 1).
		wait(2*lease).begin("a", "e1").begin("b", "e1").end("a", "e1", Failed).end("b", "e1", Done)},
	{"a delayed event comes when it is due", 0, tell("by-key").commit("t1", "k1-late", "k2", "k3").done("a", "k2", "k1-late", "k3")},
	{"a listener's dead letter is replayed, another's deleted", 0, tell("multi").commit("t1", "m1").fails("a", "m1/mail", 3).fails("a", "m1/stock", 3).
		replayed("m1/mail").deleted("m1/stock").done("a", "m1/mail").row("m1/mail", Row{Status: "DONE"})},
	{"with SkipDead a replayed event comes when it is replayed", 0, tell("by-key").promise(func(p *Promise) { p.SkipDead = true }).
		commit("t1", "k1", "k2", "k3").fails("a", "k1", 3).done("a", "k2").replayed("k1").done("a", "k1", "k3")},
	{"in ordered mode an event is repeated, and those behind it", 2, tell("ordered").commit("t1", "k1", "k2", "k3").done("a", "k1", "k2").
		fault(Server, "", lease).wait(lease).done("b", "k1", "k2", "k3")},
	{"a shutdown comes between two listeners", 1, tell("multi").commit("t1", "m1").fault(Terminate, "a", 0).done("a", "m1/mail").
		closed("a", "").done("b", "m1/mail", "m1/stock")},
	{"a request is repeated after everything that promises nothing", 0, tell("multi").
		asked("k", "tea", 0, "", false).handled("k", "t1", "tea", OpRolledBack).asked("k", "tea", 500, "", false).
		asked("k", "tea", 409, "", false).handled("k", "t2", "tea", OpUnknown).stands("t2").asked("k", "tea", 500, "", false).
		asked("k", "tea", 201, "t2", true).asked("k", "coffee", 422, "", false).asked("k", "tea", 409, "", true).asked("k", "tea", 201, "t2", true)},
	{"a different request has the key", 0, tell("multi").handled("k", "t1", "coffee", OpCommitted).
		asked("k", "tea", 422, "", false).asked("k", "coffee", 201, "t1", false).asked("k", "tea", 409, "", false)},
	{"an event expires", 0, tell("multi").commit("t1", "x1", "x2").done("a", "x2").wait(expires).expired("x1")},
	{"an event expires again after its replay", 0, tell("multi").commit("t1", "x1").wait(expires).expired("x1").replayed("x1").expired("x1")},
	{"an event expires and is dropped, before the next of its key", 0, tell("by-key").promise(func(p *Promise) {
		p.DropExpired = true
	}).commit("t1", "x1").wait(expires).commit("t2", "x2").expired("x1").noRow("x1").done("a", "x2")},
	{"a delivery begins right before it expires", 0, tell("multi").commit("t1", "x1").wait(expires).done("a", "x1")},
	{"a process is stopped when it was about to deliver", 0, tell("multi").commit("t1", "x1").wait(expires-step).fault(Stop, "a", lease).
		wait(2*time.Second).done("a", "x1")},
	{"more failures than attempts, of endless ones", 0, tell("multi").commit("t1", "n1").fails("a", "n1", 20).done("a", "n1")},
	{"a takeover counts an attempt", 0, tell("multi").commit("t1", "e1").fault(Kill, "b", 0).wait(lease).counts("e1", 1).try("a", "e1", Later).fails("a", "e1", 2).dead("e1")},
	{"PauseFor is no attempt", 0, tell("multi").commit("t1", "e1").try("a", "e1", Paused).fails("a", "e1", 2).try("a", "e1", Paused).done("a", "e1")},
	{"as many deliveries at once as the fleet-wide bound allows", 0, tell("multi").promise(bounded).commit("t1", "e1", "e2", "o1").begin("a", "e1").begin("b", "o1").
		end("a", "e1", Done).begin("b", "e2").end("b", "e2", Done).end("b", "o1", Done)},
	{"as many deliveries of each key at once as the fleet-wide bound allows", 0, tell("multi").promise(keyBounded).commit("t1", "b1a", "b1b", "b2a").
		begin("a", "b1a").begin("b", "b2a").end("a", "b1a", Done).begin("b", "b1b").end("b", "b2a", Done).end("b", "b1b", Done)},
	{"a listener outlives the share of its process", 0, tell("multi").promise(bounded).commit("t1", "e1", "e2").begin("a", "e1").fault(Network, "a", time.Minute).
		begin("b", "e2").end("b", "e2", Done).end("a", "e1", Done)},
	{"other types are delivered during a pause", 0, tell("multi").commit("t1", "e1", "o1").pauses("a", "e").wait(2*time.Second).done("a", "o1").
		done("b", "e1")},
	{"a delivery was about to begin when the pause came, another comes after it", 0, tell("multi").commit("t1", "e1", "e2").pauses("a", "e").done("a", "e1").
		pauses("a", "e", "o").wait(2*time.Second).pauses("a", "o").done("a", "e2")},
	{"a process drains", 0, tell("multi").commit("t1", "e1", "e2", "e3", "m1").draining("a").done("a", "e1", "e2").fails("a", "e3", 1).drained("a", 2, 1).
		draining("a").done("a", "e3", "m1/mail", "m1/stock").drained("a", 2, 0).draining("a")},
	{"a process dies in a Drain, another is struck", 0, tell("multi").commit("t1", "e1", "e2").draining("a").begin("a", "e1").fault(Kill, "a", 0).wait(lease).
		draining("b").fault(Network, "b", step).done("b", "e1", "e2").drained("b", 1, 0)},
	{"unique keys", 0, tell("multi").commit("t1", "u1").keptOut("t2", "u2", "u1").done("a", "u1").commit("t3", "u3").
		write("t4", "u4").ended("t4", OpRolledBack).keptOut("t5", "u5", "u3").fails("a", "u3", 1).keptOut("t6", "u6", "u3").done("a", "u3")},
	{"an event keeps out another in its own transaction", 0, tell("multi").write("t1", "u1", "u2").
		add(Record{Op: OpKeptOut, Tx: "t1", Events: events([]string{"u2"}), Event: "u1"}).ended("t1", OpCommit).ended("t1", OpCommitted).
		stands("t1", "u1").done("a", "u1")},
	{"a unique key is free after a savepoint that was rolled back", 0, tell("multi").write("t1", "u1").
		add(Record{Op: OpSavepoint, Tx: "t1", Events: events([]string{"u1"})}).commit("t1", "u2").done("a", "u2")},
	{"a write that was kept out is rolled back with what kept it out", 0, tell("multi").write("t1", "u1", "u2").
		add(Record{Op: OpKeptOut, Tx: "t1", Events: events([]string{"u2"}), Event: "u1"}).ended("t1", OpRolledBack)},
	{"a replayed event has its unique key again", 0, tell("multi").commit("t1", "u1").fails("a", "u1", 3).commit("t2", "u2").done("a", "u2").
		replayed("u1").keptOut("t3", "u3", "u1").done("a", "u1")},
	{"an event is delivered, and its process dies before the outcome is stored", 1, tell("multi").commit("t1", "u1").done("a", "u1").fault(Kill, "a", 0).
		wait(2*lease).keptOut("t2", "u2", "u1").done("b", "u1")},
	{"an event is cancelled, another in hand, a third delivered", 0, tell("multi").commit("t1", "w1", "w2", "w3").cancelled("t2", "w1").wait(delay).done("a", "w3").
		begin("a", "w2").changed("t3", Change{Does: Cancel, InHand: 1}, "w2").changed("t4", Change{Does: Cancel, Delivered: 1}, "w3").
		changed("t5", Change{Does: Cancel, Delivered: 1}, "w1").end("a", "w2", Done)},
	{"a Cancel is rolled back", 0, tell("multi").commit("t1", "w1").changes("t2", Change{Does: Cancel, Changed: 1}, "w1").ended("t2", OpRolledBack).
		row("w1", Row{Status: "DONE"}).wait(delay).done("a", "w1")},
	{"a COMMIT of a Cancel has no answer", 0, tell("multi").commit("t1", "w1", "w2").
		changes("t2", Change{Does: Cancel, Changed: 1}, "w1").ended("t2", OpUnknown).stands("t2").
		changes("t3", Change{Does: Cancel, Changed: 1}, "w2").ended("t3", OpUnknown).row("w2", Row{Status: "DONE"}).wait(delay).done("a", "w2")},
	{"an event fails and is cancelled", 0, tell("multi").commit("t1", "w1").wait(delay).fails("a", "w1", 1).cancelled("t2", "w1")},
	{"an event is cancelled in its own transaction", 0, tell("multi").write("t1", "w1").cancelled("t1", "w1")},
	{"one of two events of an aggregate is cancelled", 0, tell("multi").commit("t1", "w1", "w2").
		changed("t2", Change{Does: Cancel, Changed: 1, ByKey: true}, "w1", "w2").noRow("w1").wait(delay).done("a", "w2")},
	{"a cancelled event is delivered by a process that was stopped", 0, tell("multi").commit("t1", "w1").wait(delay).fault(Stop, "a", 2*lease).
		fails("b", "w1", 1).cancelled("t2", "w1").done("a", "w1")},
	{"an event is rescheduled twice", 0, tell("multi").commit("t1", "w1").moved("t2", "w1", time.Hour).moved("t3", "w1", 0).done("a", "w1")},
	{"an event is replaced after a failure", 0, tell("multi").commit("t1", "w1").wait(delay).fails("a", "w1", 1).replaced("t2", "w1", "x").done("a", "w1")},
	{"a dead letter is replayed and cancelled", 0, tell("multi").commit("t1", "w1").wait(delay).fails("a", "w1", 3).replayed("w1").cancelled("t2", "w1")},
	{"the latest state of a unique key", 0, tell("multi").commit("t1", "l1").latest("t2", "l2", "l1").latest("t3", "l3", "l1").begin("a", "l1").
		commit("t4", "l4").end("a", "l1", Failed).done("a", "l4", "l1")},
	{"clocks are stepped", 0, tell("by-key").promise(func(p *Promise) { p.Unordered = true }).commit("t1", "k1", "k2").done("a", "k2", "k1")},
}

func TestGoodHistoriesPass(t *testing.T) {
	t.Parallel()
	for _, c := range good {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			report := Check(c.history.h)
			require.Empty(t, report.Violations, report)
			require.Equal(t, c.explained, report.Explained)
			require.Equal(t, c.explained, report.Duplicates)
			require.Contains(t, report.String(), "rules hold")
		})
	}
}

func TestTheReportCounts(t *testing.T) {
	t.Parallel()
	report := Check(tell("multi").
		commit("t1", "e1", "o1").done("a", "e1", "o1").
		write("t2", "e2").ended("t2", OpRolledBack).
		commit("t3", "e3").fails("a", "e3", 3).dead("e3").
		write("t4", "e4").ended("t4", OpUnknown).
		commit("t5", "e5").begin("a", "e5").fault(Kill, "a", 0).done("b", "e5").
		handled("k", "t6", "tea", OpCommitted).asked("k", "tea", 0, "", false).asked("k", "tea", 500, "", false).
		asked("k", "tea", 201, "t6", false).asked("k", "tea", 201, "t6", true).asked("k", "coffee", 422, "", false).h)
	require.Empty(t, report.Violations, report)
	report.ChanceExplained, report.Span = 0, 0
	require.Equal(t, Report{
		Transactions: 6, Committed: 4, Unknown: 1, Events: 6, Standing: 4,
		Deliveries: 7, Succeeded: 3, Failed: 3, Interrupted: 1, Faults: 1, Done: 3, Dead: 1, Effects: 1,
		Keys: 1, Tries: 5, Answers: 4, Successes: 2, Repeated: 1, Refused: 1,
	}, report)
}

// A process delivers for a second, and a fault lasts a tenth of it: a random delivery's
// window of a lease and a step overlaps it twice as often.
func TestTheChanceOfARandomExplanation(t *testing.T) {
	t.Parallel()
	s := tell("multi")
	for i := range 101 {
		id := fmt.Sprintf("e%d", i)
		s.commit("t"+id, id).done("a", id).wait(5 * time.Millisecond)
		if i == 50 {
			s.fault(Network, "a", 100*time.Millisecond)
		}
	}
	require.InDelta(t, 0.2, Check(s.h).ChanceExplained, 0.03)
	require.Zero(t, Check(tell("multi").commit("t1", "e1").done("a", "e1").h).ChanceExplained)
}

func TestTheReportNamesTheFirstViolationsOfEachRule(t *testing.T) {
	t.Parallel()
	s := tell("multi")
	for i := range 9 {
		id := fmt.Sprintf("e%d", i)
		s.commit("t"+id, id)
	}
	text := Check(s.h).String()
	require.Contains(t, text, "9 violations:\n  done, event e0: the row is DONE, and no listener ever succeeded\n")
	require.Contains(t, text, "\n  done: and 4 more")
}

func TestARowsHeadersNameItsListener(t *testing.T) {
	t.Parallel()
	require.Equal(t, Target{Event: "e1"}, TargetOf("e1", map[string]string{"a": "b"}))
	require.Equal(t, Target{Event: "e1", Listener: "mail"}, TargetOf("X", map[string]string{"outbox-listener": "mail", "outbox-event-id": "e1"}))
}
