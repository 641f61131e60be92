package checker

// Rule is a promise that a history can break.
type Rule string

// The rules. [Rules] has the text of each rule.
const (
	RuleRecords       Rule = "records"
	RuleAcknowledged  Rule = "acknowledged"
	RuleAtomic        Rule = "atomic"
	RuleRolledBack    Rule = "rolled-back"
	RuleAfterCommit   Rule = "after-commit"
	RuleEnded         Rule = "ended"
	RuleDelivered     Rule = "delivered"
	RuleDone          Rule = "done"
	RuleDead          Rule = "dead"
	RuleAttempts      Rule = "attempts"
	RuleOnce          Rule = "once"
	RuleSubscriptions Rule = "subscriptions"
	RuleTwice         Rule = "twice"
	RuleExplained     Rule = "explained"
	RuleOrder         Rule = "order"
	RuleOneAtATime    Rule = "one-at-a-time"
	RuleOneProcess    Rule = "one-process"
	RuleOperators     Rule = "operators"
	RuleClosed        Rule = "closed"

	// The rules of single kinds of events.
	RuleExpires Rule = "expires"
	RuleHeard   Rule = "heard"
	RuleCounted Rule = "counted"
	RulePaused  Rule = "paused"
	RuleDrain   Rule = "drain"
	RuleBounded Rule = "bounded"

	// The rules of unique keys.
	RuleUnique  Rule = "unique"
	RuleKeptOut Rule = "kept-out"

	// The rules of events that are taken back.
	RuleTakenBack Rule = "taken-back"
	RuleCancelled Rule = "cancelled"
	RuleDue       Rule = "due"
	RuleLatest    Rule = "latest"

	// The rules of requests with keys.
	RuleRequestOnce   Rule = "request-once"
	RuleRequestAnswer Rule = "request-answer"
	RuleRequestOther  Rule = "request-other"
	RuleRequestEnd    Rule = "request-end"
)

// RuleText is a rule and the rule's demand, in one sentence.
type RuleText struct {
	Rule Rule
	Text string
}

// Rules are all rules.
var Rules = []RuleText{
	{RuleRecords, "The records of the run fit together; otherwise they prove nothing."},
	{RuleAcknowledged, "A transaction whose COMMIT was acknowledged stands, and a transaction that was reported as rolled back does not; after an unknown COMMIT it may be either."},
	{RuleAtomic, "A row of an event stands exactly if the transaction stands and no savepoint took the event back, unless the row was deleted after the delivery or by an operator."},
	{RuleRolledBack, "An event that was rolled back with the transaction or a savepoint, or that was never written, is never delivered."},
	{RuleAfterCommit, "No delivery begins before the event's transaction begins to commit."},
	{RuleEnded, "At the end each row is DONE or DEAD, and without a lease, unless a DEAD event of the same key blocks it."},
	{RuleDelivered, "Each event of a transaction that stands was delivered, is DEAD, or was deleted by an operator: none is lost."},
	{RuleDone, "A DONE row was delivered: the listener returned success."},
	{RuleDead, "A DEAD row has a reason, and the reason holds: no attempts left, the listener's word, or expired. An event with endless attempts has attempts left."},
	{RuleAttempts, "No more than MaxAttempts deliveries of an event to a listener fail, not counting those whose outcome a fault may have kept from the table; a replay starts over."},
	{RuleOnce, "An effect through Complete or the inbox stands exactly once for a delivered event, at most once for a DEAD event, and never for one that was rolled back."},
	{RuleSubscriptions, "Each listener of an event succeeds or has its own DEAD row, and the failure of a listener does not repeat another that succeeded."},
	{RuleTwice, "Without a fault (a shutdown is none) no event is delivered to a listener again after a success, or by two at once."},
	{RuleExplained, "With faults, each such repeat is explained: by a fault of the first delivery's process, between that delivery's beginning and one lease after its end; or because a fault made one of the two processes lose the lease before the first began, or the first one's process before a third began, by the process that took over."},
	{RuleOrder, "The first deliveries of a key's events are in order, each after the success of the one before; if an event is delivered again, so are those behind it that were delivered already."},
	{RuleOneAtATime, "Two events of a key are not delivered at the same time, unless a fault of the first one's process explains it."},
	{RuleOneProcess, "In single and ordered mode one process at a time delivers, unless a fault of the first process explains it."},
	{RuleOperators, "A DEAD event that was replayed is delivered again, and a DEAD event that was deleted has no row."},
	{RuleClosed, "After Close no delivery begins; if Close returned no error, none was under way, and each success was stored."},
	{RuleExpires, "No delivery of an event begins after the event has expired, by the clock of the process (up to a second later: the delivery may have been about to begin), and no event becomes DEAD as expired, or is dropped, before."},
	{RuleHeard, "No event is DEAD for lack of a listener: each type of events has a listener in a process, which delivers them in the end."},
	{RuleCounted, "An attempt is counted for a delivery that failed, and for no other: not for a delivery that deferred the event or paused the kind, and not in a process without a listener. A process that a fault of the run struck may count more. Events with several listeners, and events that operators replayed, are left out."},
	{RulePaused, "A process that has learned that a type of events is paused begins no delivery of this type (up to a second later: the delivery may have been about to begin) until it has learned that the pause is over."},
	{RuleDrain, "A process that only drains delivers nothing outside of a Drain, and in a Drain each event at most once and at most as many events as asked for. The result counts its successes, and no failure that it did not have."},
	{RuleBounded, "All processes together make no more deliveries at once of a type with a fleet-wide Concurrency, or of a key of a type with a fleet-wide KeyConcurrency, than it allows, not counting those of a process that a fault other than a kill kept from renewing its share."},
	{RuleUnique, "Of the events of a type with the same unique key at most one is pending at a time, not counting the time after an operator replayed it, and events that lost the key to a write with KeepLatest."},
	{RuleKeptOut, "A write that a unique key keeps out writes no event. The write returns the id of an event of the same type with that key, which stands and has not ended before the write began: that event is delivered for both."},
	{RuleTakenBack, "Cancel, Reschedule, Replace and a write with KeepLatest change no event that is in hand or delivered, unless a fault of the process that has it explains it. The counts cover each event, and are true: an event counted as delivered was delivered, cancelled or deleted, and an event that was never tried and is due more than a second later is not in hand."},
	{RuleCancelled, "An event that a transaction that stands cancelled is not delivered from then on, unless a fault made the process that delivers it lose the lease before, and has no row at the end."},
	{RuleDue, "No delivery of an event that can be taken back begins before it is due, by the clock of the process: at the time with which it was written, rescheduled or replaced last."},
	{RuleLatest, "Each delivery has the content that the last change before it gave the event, by Replace or by a write with KeepLatest, unless a fault made the process lose its lease before. After the last change the event is delivered, is DEAD, or was deleted by an operator."},
	{RuleRequestOnce, "Of the executions of the requests with a key at most one stands, and exactly one if any of the requests was answered as done. An answer 409 without Idempotent-Replayed, an answer from 500 on, and no answer promise nothing."},
	{RuleRequestAnswer, "All successful answers of a key have the status and the body of the execution that stands, and all but one at most have the header Idempotent-Replayed."},
	{RuleRequestOther, "Two different requests with the same key are not both answered as done, and a request is answered 422 only if a different request has the key."},
	{RuleRequestEnd, "When the faults are over, a request with each key succeeds."},
}
