package checker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/outboxkit/outbox-go/proof/checker" //nolint:revive // the tables are of its words
)

// broken are histories that break one rule each.
var broken = []struct {
	name    string
	rule    Rule
	history *story
}{
	{"an event is written twice", RuleRecords, tell("multi").commit("t1", "e1").commit("t2", "e1").done("a", "e1")},
	{"a delivery ends that never began", RuleRecords, tell("multi").commit("t1", "e1").done("a", "e1").
		add(Record{Process: "a", Op: OpEnded, Event: "e1", Call: 9, Result: Done})},
	{"a transaction ends twice", RuleRecords, tell("multi").commit("t1", "e1").ended("t1", OpUnknown).done("a", "e1")},
	{"a transaction stands that none wrote", RuleRecords, tell("multi").commit("t1", "e1").done("a", "e1").stands("t2")},
	{"a savepoint takes back what none wrote", RuleRecords, tell("multi").commit("t1", "e1").done("a", "e1").
		add(Record{Op: OpSavepoint, Tx: "t1", Events: []Event{{ID: "e2"}}})},
	{"a dead letter is replayed that never was", RuleRecords, tell("multi").replayed("e1")},
	{"two events have one place in their key", RuleRecords, tell("multi").commit("t1", "k1", "k1b").done("a", "k1", "k1b")},

	{"an acknowledged transaction is lost", RuleAcknowledged, tell("multi").write("t1", "e1").ended("t1", OpCommitted)},
	{"a transaction stands that was rolled back", RuleAcknowledged, tell("multi").write("t1", "e1").ended("t1", OpRolledBack).
		stands("t1", "e1").done("a", "e1")},

	{"a row of a rolled-back transaction", RuleAtomic, tell("multi").write("t1", "e1").ended("t1", OpRolledBack).row("e1", Row{Status: "NEW"})},
	{"a row of an unknown COMMIT without its order", RuleAtomic, tell("multi").write("t1", "e1").ended("t1", OpUnknown).row("e1", Row{Status: "DONE"})},
	{"a row of a savepoint that was rolled back", RuleAtomic, tell("multi").write("t1", "e2").
		add(Record{Op: OpSavepoint, Tx: "t1", Events: events([]string{"e2"})}).commit("t1", "e1").done("a", "e1").row("e2", Row{Status: "NEW"})},
	{"a row that none wrote", RuleAtomic, tell("multi").row("e9", Row{Status: "DONE"})},
	{"a delivered event without a row", RuleAtomic, tell("multi").commit("t1", "e1").done("a", "e1").noRow("e1")},

	{"a rolled-back event is delivered", RuleRolledBack, tell("multi").write("t1", "e1").ended("t1", OpRolledBack).done("a", "e1")},
	{"an event of a dead writer is delivered", RuleRolledBack, tell("multi").write("t1", "e1").fault(Kill, "w", 0).done("a", "e1")},
	{"an event of a savepoint is delivered", RuleRolledBack, tell("multi").write("t1", "e2").
		add(Record{Op: OpSavepoint, Tx: "t1", Events: events([]string{"e2"})}).commit("t1", "e1").done("a", "e1", "e2")},
	{"an event is delivered that none wrote", RuleRolledBack, tell("multi").done("a", "e1")},

	{"a delivery before the writing", RuleAfterCommit, tell("multi").done("a", "e1").commit("t1", "e1")},
	{"a delivery before the COMMIT", RuleAfterCommit, tell("multi").write("t1", "e1").done("a", "e1").
		ended("t1", OpCommit).ended("t1", OpCommitted).stands("t1", "e1")},

	{"a row stays NEW", RuleEnded, tell("multi").commit("t1", "e1").row("e1", Row{Status: "NEW"})},
	{"a row stays RETRY", RuleEnded, tell("multi").commit("t1", "e1").fails("a", "e1", 1).row("e1", Row{Status: "RETRY", Attempts: 1})},
	{"a listener's row stays RETRY", RuleEnded, tell("multi").commit("t1", "m1").done("a", "m1/mail").fails("a", "m1/stock", 1).
		row("m1/stock", Row{Status: "RETRY"})},
	{"a DONE row keeps its lease", RuleEnded, tell("multi").commit("t1", "e1").done("a", "e1").row("e1", Row{Status: "DONE", Lease: "a/1"})},
	{"a key waits for a DEAD event behind", RuleEnded, tell("by-key").fault(Kill, "b", 0).commit("t1", "k1", "k2").row("k1", Row{Status: "RETRY"}).dead("k2")},
	{"a key waits although DEAD events are skipped", RuleEnded, tell("by-key").promise(func(p *Promise) { p.SkipDead = true }).
		commit("t1", "k1", "k2").fails("a", "k1", 3).dead("k1").row("k2", Row{Status: "NEW"})},

	{"an event is lost", RuleDelivered, tell("multi").commit("t1", "e1", "e2").done("a", "e1").noRow("e2")},
	{"the purge deletes a pending event", RuleDelivered, tell("multi").promise(func(p *Promise) { p.DeletesDone = true }).
		commit("t1", "e1").fails("a", "e1", 1).noRow("e1")},
	{"an unknown COMMIT stands and its event is lost", RuleDelivered, tell("multi").write("t1", "e1").ended("t1", OpUnknown).stands("t1")},

	{"DONE and never delivered", RuleDone, tell("multi").commit("t1", "e1")},
	{"DONE after a failure", RuleDone, tell("multi").commit("t1", "e1").fails("a", "e1", 1)},
	{"DONE after a delivery that died", RuleDone, tell("multi").commit("t1", "e1").begin("a", "e1").fault(Kill, "a", 0)},
	{"a listener's row is DONE after a failure", RuleDone, tell("multi").commit("t1", "m1").done("a", "m1/mail").fails("a", "m1/stock", 2).
		row("m1/stock", Row{Status: "DONE"})},

	{"DEAD without a reason", RuleDead, tell("multi").commit("t1", "e1").fails("a", "e1", 3).row("e1", Row{Status: "DEAD", Attempts: 3})},
	{"DEAD with attempts left", RuleDead, tell("multi").commit("t1", "e1").fails("a", "e1", 2).row("e1", Row{Status: "DEAD", Attempts: 2, LastError: "failed"})},
	{"a listener's row is DEAD with attempts left", RuleDead, tell("multi").commit("t1", "m1").done("a", "m1/mail").fails("a", "m1/stock", 1).
		row("m1/stock", Row{Status: "DEAD", Attempts: 1, LastError: "failed"})},

	{"more failures than attempts", RuleAttempts, tell("multi").commit("t1", "e1").fails("a", "e1", 4).dead("e1")},
	{"more failures than attempts after a replay", RuleAttempts, tell("multi").commit("t1", "e1").fails("a", "e1", 3).replayed("e1").fails("a", "e1", 4).dead("e1")},
	{"more failures of a listener than attempts", RuleAttempts, tell("multi").commit("t1", "m1").done("a", "m1/mail").fails("a", "m1/stock", 4).dead("m1/stock")},
	{"two failures in ordered mode", RuleAttempts, tell("ordered").commit("t1", "e1").fails("a", "e1", 2).
		row("e1", Row{Status: "DEAD", Attempts: 2, LastError: "failed"})},

	{"an effect happens twice", RuleOnce, tell("multi").commit("t1", "o1").done("a", "o1").effects("o1", 2)},
	{"an effect is missing", RuleOnce, tell("multi").commit("t1", "o1").done("a", "o1").effects("o1", 0)},
	{"an effect of a rolled-back event", RuleOnce, tell("multi").write("t1", "o1").ended("t1", OpRolledBack).effects("o1", 1)},
	{"two effects of a DEAD event", RuleOnce, tell("multi").commit("t1", "o1").fails("a", "o1", 3).dead("o1").effects("o1", 2)},

	{"a listener is left out", RuleSubscriptions, tell("multi").commit("t1", "m1").done("a", "m1/mail")},
	{"a failed listener has no row", RuleSubscriptions, tell("multi").commit("t1", "m1").done("a", "m1/mail").fails("a", "m1/stock", 1)},
	{"a listener is called again with one that failed", RuleSubscriptions, tell("multi").commit("t1", "m1").
		done("a", "m1/mail").fails("a", "m1/stock", 1).done("a", "m1/mail", "m1/stock")},
	{"a listener that does not listen", RuleSubscriptions, tell("multi").commit("t1", "e1").done("a", "e1", "e1/mail")},

	{"again after a success", RuleTwice, tell("multi").commit("t1", "e1").done("a", "e1", "e1")},
	{"again after a shutdown of another process", RuleTwice, tell("multi").commit("t1", "e1").done("a", "e1").fault(Terminate, "b", 0).done("c", "e1")},
	{"twice at once", RuleTwice, tell("multi").commit("t1", "e1").begin("a", "e1").begin("b", "e1").end("a", "e1", Failed).end("b", "e1", Done)},
	{"all listeners again after a success", RuleTwice, tell("multi").commit("t1", "m1").done("a", "m1/mail", "m1/stock").done("b", "m1/mail")},

	{"again, and the fault was another process's", RuleExplained, tell("multi").commit("t1", "e1").done("a", "e1").fault(Kill, "b", 0).wait(lease).done("c", "e1")},
	{"again, and the fault was over", RuleExplained, tell("multi").fault(Stop, "a", step).commit("t1", "e1").done("a", "e1").wait(lease).done("b", "e1")},
	{"again, and the fault came a lease later", RuleExplained, tell("multi").commit("t1", "e1").done("a", "e1").wait(2*lease).fault(Kill, "a", 0).done("b", "e1")},
	{"again, before the fault", RuleExplained, tell("multi").commit("t1", "e1").done("a", "e1").done("b", "e1").fault(Kill, "a", 0)},
	{"at once, without a fault of the first", RuleExplained, tell("multi").commit("t1", "e1").begin("a", "e1").fault(Network, "b", lease).
		begin("b", "e1").end("b", "e1", Done).end("a", "e1", Done)},

	{"at once, by a process that was stopped before it had the event, first", RuleExplained, tell("multi").fault(Stop, "a", lease).wait(lease+step).commit("t1", "e1").
		begin("a", "e1").begin("b", "e1").end("a", "e1", Done).end("b", "e1", Done)},
	{"at once, by a process that was stopped before it had the key, first", RuleExplained, tell("by-key").fault(Stop, "a", lease).wait(lease+step).commit("t1", "k1").
		begin("a", "k1").begin("b", "k1").end("a", "k1", Done).end("b", "k1", Done)},
	{"again, long after a delivery under a lease that was lost", RuleExplained, tell("multi").commit("t1", "e1").fault(Stop, "a", 2*lease).wait(2*lease+step).
		done("a", "e1").wait(2*lease).done("b", "e1")},
	{"again, by more calls than a stopped process has workers", RuleExplained, tell("by-key").promise(func(p *Promise) { p.Workers = 1 }).
		commit("t1", "e1", "e2").fault(Stop, "a", 2*lease).wait(lease).done("b", "e1", "e2").wait(lease).done("a", "e1", "e2")},
	{"at once with a process that was stopped before it had the event", RuleExplained, tell("multi").fault(Stop, "a", lease).wait(4*lease).commit("t1", "e1").fails("b", "e1", 1).
		begin("a", "e1").begin("b", "e1").end("a", "e1", Failed).end("b", "e1", Done)},
	{"again, by a process that had time to notice", RuleExplained, tell("multi").fault(Network, "a", lease).wait(4*lease).
		commit("t1", "e1").done("b", "e1").done("a", "e1")},

	{"a later event first", RuleOrder, tell("by-key").commit("t1", "k1", "k2").done("a", "k2", "k1")},
	{"a later event after a failure", RuleOrder, tell("by-key").commit("t1", "k1", "k2").fails("a", "k1", 1).done("a", "k2", "k1")},
	{"a later event instead of a deferred one", RuleOrder, tell("by-key").commit("t1", "k1", "k2").try("a", "k1", Later).done("b", "k2", "k1")},
	{"an early event again, and not the later one", RuleOrder, tell("by-key").commit("t1", "k1", "k2").done("a", "k1", "k2").fault(Kill, "a", 0).done("b", "k1")},
	{"an early event again, and one left out", RuleOrder, tell("by-key").commit("t1", "k1", "k2", "k3").done("a", "k1", "k2").fault(Kill, "a", 0).done("b", "k1", "k3")},
	{"an early event fails again, and the later one comes", RuleOrder, tell("by-key").commit("t1", "k1", "k2").done("a", "k1", "k2").
		fault(Kill, "a", 0).fails("b", "k1", 1).done("b", "k2", "k1")},
	{"behind a listener that failed", RuleOrder, tell("by-key").promise(func(p *Promise) { p.Listeners["k"] = []string{"mail", "stock"} }).
		commit("t1", "k1", "k2").done("a", "k1/mail").fails("a", "k1/stock", 1).done("a", "k2/mail", "k2/stock", "k1/stock")},
	{"two late deliveries after one stop", RuleOrder, tell("by-key").commit("t1", "k1", "k2", "k3").done("a", "k1", "k2").
		fault(Stop, "a", 2*lease).wait(lease).done("b", "k1", "k2").wait(lease).done("a", "k1", "k1").done("b", "k3")},
	{"in ordered mode an event is repeated alone", RuleOrder, tell("ordered").commit("t1", "k1", "k2", "k3").done("a", "k1", "k2").
		fault(Server, "", lease).wait(lease).done("b", "k1", "k3")},
	{"DEAD after a later DONE", RuleOrder, tell("ordered").commit("t1", "k1", "k2", "k3").dead("k1").fails("a", "k1", 1).done("a", "k2").
		fault(Kill, "a", 0).fails("b", "k1", 1).done("b", "k3")},

	{"two events of a key at once", RuleOneAtATime, tell("by-key").commit("t1", "k1", "k2").begin("a", "k1").begin("b", "k2").end("a", "k1", Done).end("b", "k2", Done)},
	{"the listeners of one event at once", RuleOneAtATime, tell("by-key").promise(func(p *Promise) { p.Listeners["k"] = []string{"mail", "stock"} }).
		commit("t1", "k1").begin("a", "k1/mail").begin("b", "k1/stock").end("a", "k1/mail", Done).end("b", "k1/stock", Done)},
	{"two processes in single mode", RuleOneProcess, tell("single").commit("t1", "e1", "e2").begin("a", "e1").begin("b", "e2").end("a", "e1", Done).end("b", "e2", Done)},

	{"a replayed event stays DEAD", RuleOperators, tell("multi").commit("t1", "e1").fails("a", "e1", 3).replayed("e1").dead("e1")},
	{"a replayed listener is not called", RuleOperators, tell("multi").commit("t1", "m1").done("a", "m1/mail").fails("a", "m1/stock", 3).
		replayed("m1/stock").dead("m1/stock")},
	{"a listener's deleted dead letter is still there", RuleOperators, tell("multi").commit("t1", "m1").done("a", "m1/mail").fails("a", "m1/stock", 3).
		deleted("m1/stock").dead("m1/stock")},
	{"a restored dead letter is gone", RuleDelivered, tell("multi").commit("t1", "e1").fails("a", "e1", 3).deleted("e1").restored("e1").noRow("e1")},
	{"a dead letter is restored that was not deleted", RuleRecords, tell("multi").commit("t1", "e1").fails("a", "e1", 3).restored("e1").dead("e1")},
	{"a dead letter is deleted again and still there", RuleOperators, tell("multi").commit("t1", "e1").fails("a", "e1", 3).deleted("e1").restored("e1").deleted("e1").dead("e1")},
	{"a deleted dead letter is still there", RuleOperators, tell("multi").commit("t1", "e1").fails("a", "e1", 3).deleted("e1").dead("e1")},

	{"delivered after it expired", RuleExpires, tell("multi").commit("t1", "x1").wait(expires+2*time.Second).done("a", "x1")},
	{"delivered after it expired by the clock of the process", RuleExpires, tell("multi").commit("t1", "x1").wait(expires / 2).
		add(Record{Process: "a", Op: OpBegan, Event: "x1", Call: 1, Ahead: expires}).add(Record{Process: "a", Op: OpEnded, Event: "x1", Call: 1, Result: Done})},
	{"retried after it expired", RuleExpires, tell("multi").commit("t1", "x1").fails("a", "x1", 1).wait(expires+2*time.Second).done("a", "x1")},
	{"expired early", RuleExpires, tell("multi").commit("t1", "x1").wait(expires - time.Second).expired("x1")},
	{"expired and dropped early", RuleExpires, tell("multi").promise(func(p *Promise) { p.DropExpired = true }).
		commit("t1", "x1").wait(expires - time.Second).expired("x1").noRow("x1")},
	{"expired and kept", RuleExpires, tell("multi").promise(func(p *Promise) { p.DropExpired = true }).commit("t1", "x1").wait(expires).expired("x1")},
	{"an event expires whose type does not", RuleExpires, tell("multi").commit("t1", "e1").wait(expires).expired("e1")},
	{"an event that may expire is lost", RuleDelivered, tell("multi").promise(func(p *Promise) { p.DropExpired = true }).commit("t1", "x1").wait(expires).noRow("x1")},
	{"a replayed event that may expire stays DEAD", RuleOperators, tell("multi").commit("t1", "x1").wait(expires).expired("x1").replayed("x1")},
	{"DEAD with endless attempts", RuleDead, tell("multi").commit("t1", "n1").fails("a", "n1", 3).dead("n1")},
	{"no attempts left of endless ones", RuleDead, tell("multi").commit("t1", "n1").fails("a", "n1", 3).
		row("n1", Row{Status: "DEAD", Attempts: 3, LastError: "no attempts left"})},

	{"DEAD for lack of a listener", RuleHeard, tell("multi").commit("t1", "e1").row("e1", Row{Status: "DEAD", LastError: "unroutable: no listener"})},
	{"a deferral counts as an attempt", RuleCounted, tell("multi").commit("t1", "e1").try("a", "e1", Later).counts("e1", 1).done("a", "e1")},
	{"a failure counts twice", RuleCounted, tell("multi").commit("t1", "e1").fails("a", "e1", 1).counts("e1", 1).done("a", "e1")},
	{"attempts without a delivery", RuleCounted, tell("multi").commit("t1", "e1").row("e1", Row{Status: "DEAD", Attempts: 3, LastError: "no attempts left"})},

	{"PauseFor counts as an attempt", RuleCounted, tell("multi").commit("t1", "e1").try("a", "e1", Paused).counts("e1", 1).done("a", "e1")},
	{"delivered during a pause", RulePaused, tell("multi").commit("t1", "e1").pauses("a", "e").wait(2*time.Second).done("a", "e1")},
	{"delivered during a pause that another pause follows", RulePaused, tell("multi").commit("t1", "e1").pauses("a", "e").wait(2*time.Second).
		pauses("a", "e", "o").done("a", "e1")},
	{"more deliveries at once than the fleet-wide bound", RuleBounded, tell("multi").promise(bounded).commit("t1", "e1", "e2").begin("a", "e1").begin("b", "e2").
		end("a", "e1", Done).end("b", "e2", Done)},
	{"more deliveries of a key at once than the fleet-wide bound", RuleBounded, tell("multi").promise(keyBounded).commit("t1", "b1a", "b1b").
		begin("a", "b1a").begin("b", "b1b").end("a", "b1a", Done).end("b", "b1b", Done)},
	{"delivered between two Drains", RuleDrain, tell("multi").commit("t1", "e1").draining("a").drained("a", 0, 0).done("a", "e1").draining("a").drained("a", 0, 0)},
	{"a Drain returns before the delivery ends", RuleDrain, tell("multi").commit("t1", "e1").draining("a").begin("a", "e1").drained("a", 0, 0).end("a", "e1", Done)},
	{"retried in the same Drain", RuleDrain, tell("multi").commit("t1", "e1").draining("a").fails("a", "e1", 1).done("a", "e1").drained("a", 1, 1)},
	{"more events than a Drain may deliver", RuleDrain, tell("multi").commit("t1", "e1", "e2", "e3", "e4").draining("a").done("a", "e1", "e2", "e3", "e4").drained("a", 4, 0)},
	{"a Drain counts a success that was none", RuleDrain, tell("multi").commit("t1", "e1").draining("a").done("a", "e1").drained("a", 2, 0)},
	{"a Drain does not count a success", RuleDrain, tell("multi").commit("t1", "e1").draining("a").done("a", "e1").drained("a", 0, 0)},
	{"a Drain counts a failure that was none", RuleDrain, tell("multi").commit("t1", "e1").draining("a").done("a", "e1").drained("a", 1, 1)},
	{"a Drain ends that never began", RuleRecords, tell("multi").drained("a", 0, 0)},

	{"two events with a unique key are pending", RuleUnique, tell("multi").commit("t1", "u1").commit("t2", "u2").done("a", "u1", "u2")},
	{"a transaction writes two events with a unique key", RuleUnique, tell("multi").commit("t1", "u1", "u2").done("a", "u1", "u2")},
	{"a unique key is free while its event waits for a retry", RuleUnique, tell("multi").commit("t1", "u1").fails("a", "u1", 1).commit("t2", "u2").done("a", "u1", "u2")},
	{"kept out by an event that had ended", RuleKeptOut, tell("multi").commit("t1", "u1").done("a", "u1").commit("t2", "u2").keptOut("t3", "u3", "u1").done("a", "u2")},
	{"kept out by an event that was delivered long before", RuleKeptOut, tell("multi").commit("t1", "u1").done("a", "u1").wait(2*lease).keptOut("t2", "u2", "u1")},
	{"kept out by an event that was rolled back", RuleKeptOut, tell("multi").write("t1", "u1").keptOut("t2", "u2", "u1").ended("t1", OpRolledBack)},
	{"kept out by an event that was kept out", RuleKeptOut, tell("multi").commit("t1", "u1").keptOut("t2", "u2", "u1").keptOut("t3", "u3", "u2").done("a", "u1")},
	{"kept out by itself", RuleKeptOut, tell("multi").keptOut("t1", "u1", "u1")},
	{"kept out by an event without the key", RuleKeptOut, tell("multi").commit("t1", "e1").keptOut("t2", "u1", "e1").done("a", "e1")},
	{"kept out by an event that was written later", RuleKeptOut, tell("multi").keptOut("t1", "u1", "u2").commit("t2", "u2").done("a", "u2")},
	{"an event that was kept out has a row", RuleAtomic, tell("multi").commit("t1", "u1").keptOut("t2", "u2", "u1").done("a", "u1").row("u2", Row{Status: "DONE"})},
	{"an event that was kept out is delivered", RuleRolledBack, tell("multi").commit("t1", "u1").keptOut("t2", "u2", "u1").done("a", "u1", "u2")},
	{"a write is skipped, and says nothing of it", RuleDelivered, tell("multi").commit("t1", "u1").commit("t2", "u2").done("a", "u1").noRow("u2")},
	{"what was never written is kept out", RuleRecords, tell("multi").commit("t1", "u1").done("a", "u1").
		add(Record{Op: OpKeptOut, Tx: "t1", Events: events([]string{"u2"}), Event: "u1"})},

	{"an event is cancelled while it is in hand", RuleTakenBack, tell("multi").commit("t1", "w1").wait(delay).begin("a", "w1").cancelled("t2", "w1").end("a", "w1", Done)},
	{"an event is cancelled after its delivery", RuleTakenBack, tell("multi").commit("t1", "w1").wait(delay).done("a", "w1").cancelled("t2", "w1")},
	{"an event is cancelled that was rolled back", RuleTakenBack, tell("multi").write("t1", "w1").ended("t1", OpRolledBack).cancelled("t2", "w1")},
	{"KeepLatest replaces an event in hand", RuleTakenBack, tell("multi").commit("t1", "l1").begin("a", "l1").latest("t2", "l2", "l1").
		end("a", "l1", Failed).done("a", "l1")},
	{"a Cancel does not count an event", RuleTakenBack, tell("multi").commit("t1", "w1").changed("t2", Change{Does: Cancel}, "w1").wait(delay).done("a", "w1")},
	{"a Cancel counts an event twice", RuleTakenBack, tell("multi").commit("t1", "w1").wait(delay).begin("a", "w1").
		changed("t2", Change{Does: Cancel, InHand: 1, Delivered: 1}, "w1").end("a", "w1", Done)},
	{"an event counts as delivered that is pending", RuleTakenBack, tell("multi").commit("t1", "w1").changed("t2", Change{Does: Cancel, Delivered: 1}, "w1").
		wait(delay).done("a", "w1")},
	{"an event counts as delivered that is being delivered", RuleTakenBack, tell("multi").commit("t1", "w1").wait(delay).fails("a", "w1", 1).begin("a", "w1").
		changed("t2", Change{Does: Cancel, Delivered: 1}, "w1").end("a", "w1", Done)},
	{"an event counts as in hand that is due in an hour", RuleTakenBack, tell("multi").commit("t1", "w1").moved("t2", "w1", time.Hour).
		changed("t3", Change{Does: Cancel, InHand: 1}, "w1").wait(time.Hour).done("a", "w1")},
	{"a cancelled event is delivered", RuleCancelled, tell("multi").commit("t1", "w1").cancelled("t2", "w1").wait(delay).done("a", "w1")},
	{"a cancelled event is delivered again", RuleCancelled, tell("multi").commit("t1", "w1").wait(delay).fails("a", "w1", 1).cancelled("t2", "w1").fails("a", "w1", 1)},
	{"a cancelled event is delivered, and another process was stopped", RuleCancelled, tell("multi").commit("t1", "w1").fault(Stop, "b", lease).cancelled("t2", "w1").done("a", "w1")},
	{"a cancelled event has a row", RuleCancelled, tell("multi").commit("t1", "w1").cancelled("t2", "w1").row("w1", Row{Status: "NEW"})},
	{"a cancelled event is delivered after a COMMIT without an answer", RuleCancelled, tell("multi").commit("t1", "w1").
		changes("t2", Change{Does: Cancel, Changed: 1}, "w1").ended("t2", OpUnknown).stands("t2").wait(delay).done("a", "w1")},
	{"an event is gone whose Cancel was rolled back", RuleDelivered, tell("multi").commit("t1", "w1").
		changes("t2", Change{Does: Cancel, Changed: 1}, "w1").ended("t2", OpRolledBack)},
	{"an event is gone that a Cancel counted as in hand", RuleDelivered, tell("multi").commit("t1", "w1").wait(delay).fails("a", "w1", 1).
		changed("t2", Change{Does: Cancel, InHand: 1}, "w1").noRow("w1")},
	{"an event is delivered early", RuleDue, tell("multi").commit("t1", "w1").done("a", "w1")},
	{"an event is delivered before it is due since its Reschedule", RuleDue, tell("multi").commit("t1", "w1").moved("t2", "w1", 2*delay).wait(delay).done("a", "w1")},
	{"an event is delivered when a Reschedule that was rolled back made it due", RuleDue, tell("multi").commit("t1", "w1").
		changes("t2", Change{Does: Reschedule, Changed: 1, Due: time.Unix(0, 0)}, "w1").ended("t2", OpRolledBack).done("a", "w1")},
	{"a rescheduled event is not delivered again", RuleLatest, tell("multi").commit("t1", "w1").wait(delay).fault(Network, "a", lease).done("a", "w1").moved("t2", "w1", 0)},
	{"a replaced event is delivered with its former content", RuleLatest, tell("multi").commit("t1", "w1").replaced("t2", "w1", "x").replaced("t3", "w1", "y").wait(delay).
		add(Record{Process: "a", Op: OpBegan, Event: "w1", Call: 99, Content: "x"}).add(Record{Process: "a", Op: OpEnded, Event: "w1", Call: 99, Result: Done})},
	{"a replacement that was rolled back is delivered", RuleLatest, tell("multi").commit("t1", "w1").
		changes("t2", Change{Does: Replace, Changed: 1, Content: "x"}, "w1").ended("t2", OpRolledBack).wait(delay).done("a", "w1")},
	{"the state before the latest is delivered", RuleLatest, tell("multi").commit("t1", "l1").latest("t2", "l2", "l1").
		add(Record{Process: "a", Op: OpBegan, Event: "l1", Call: 99, Content: "l1"}).add(Record{Process: "a", Op: OpEnded, Event: "l1", Call: 99, Result: Done})},
	{"an event is changed that was never written", RuleRecords, tell("multi").changed("t1", Change{Does: Cancel, Delivered: 1}, "w1")},

	{"two executions of a request", RuleRequestOnce, tell("multi").handled("k", "t1", "tea", OpCommitted).handled("k", "t2", "tea", OpCommitted).
		asked("k", "tea", 201, "t1", false)},
	{"a request that was done leaves nothing", RuleRequestOnce, tell("multi").handled("k", "t1", "tea", OpUnknown).asked("k", "tea", 201, "t1", false)},
	{"two different answers", RuleRequestAnswer, tell("multi").handled("k", "t1", "tea", OpCommitted).
		asked("k", "tea", 201, "t1", false).asked("k", "tea", 200, "t1", true)},
	{"the answer of an execution that was rolled back", RuleRequestAnswer, tell("multi").handled("k", "t1", "tea", OpRolledBack).
		handled("k", "t2", "tea", OpCommitted).asked("k", "tea", 201, "t1", true)},
	{"two answers that are not marked as replayed", RuleRequestAnswer, tell("multi").handled("k", "t1", "tea", OpCommitted).
		asked("k", "tea", 201, "t1", false).asked("k", "tea", 201, "t1", false)},
	{"a different request with the key is done", RuleRequestOther, tell("multi").handled("k", "t1", "tea", OpCommitted).
		asked("k", "tea", 201, "t1", false).asked("k", "coffee", 201, "t1", true)},
	{"a different request with the key was done before", RuleRequestOther, tell("multi").handled("k", "t1", "tea", OpCommitted).
		asked("k", "tea", 201, "t1", false).asked("k", "coffee", 409, "", true)},
	{"the same request is refused", RuleRequestOther, tell("multi").handled("k", "t1", "tea", OpCommitted).
		asked("k", "tea", 201, "t1", false).asked("k", "tea", 422, "", false)},
	{"a request never succeeds", RuleRequestEnd, tell("multi").handled("k", "t1", "tea", OpRolledBack).asked("k", "tea", 500, "", false).asked("k", "tea", 409, "", false)},
	{"an execution that no client asked for", RuleRecords, tell("multi").handled("k", "t1", "tea", OpCommitted).
		add(Record{Process: "clients", Op: OpAnswered, Request: &Request{Key: "k", Asks: "tea", Status: 201, Answer: "t1"}})},
	{"an answer that no server gives", RuleRecords, tell("multi").handled("k", "t1", "tea", OpCommitted).
		asked("k", "tea", 201, "t1", false).asked("k", "tea", 404, "", false)},

	{"a delivery after Close", RuleClosed, tell("multi").commit("t1", "e1").closed("a", "").done("a", "e1")},
	{"a delivery after Close failed", RuleClosed, tell("multi").commit("t1", "e1").closed("a", "cut off").done("a", "e1")},
	{"Close leaves a delivery", RuleClosed, tell("multi").commit("t1", "e1").begin("a", "e1").closed("a", "").end("a", "e1", Done)},
	{"Close does not store a success", RuleClosed, tell("multi").commit("t1", "e1").fault(Terminate, "a", 0).done("a", "e1").closed("a", "").wait(lease).done("b", "e1")},
}

func TestBrokenHistoriesAreRejected(t *testing.T) {
	t.Parallel()
	for _, c := range broken {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			report := Check(c.history.h)
			require.Equal(t, []Rule{c.rule}, report.Broken(), report)
			require.Contains(t, report.String(), string(c.rule))
		})
	}
}

// Each rule rejects something, and each that rejects something is listed.
func TestEachRuleRejectsABrokenHistory(t *testing.T) {
	t.Parallel()
	covered := map[Rule]bool{}
	for _, c := range broken {
		covered[c.rule] = true
	}
	for _, rule := range Rules {
		require.True(t, covered[rule.Rule], rule.Rule)
		delete(covered, rule.Rule)
	}
	require.Empty(t, covered)
	require.GreaterOrEqual(t, len(broken), 40)
}

// bounded bounds the deliveries of the type e.
func bounded(p *Promise) { p.Bounds = map[string]int{"e": 1} }

// keyBounded bounds the deliveries of a key of the type b.
func keyBounded(p *Promise) { p.KeyBounds = map[string]int{"b": 1} }
