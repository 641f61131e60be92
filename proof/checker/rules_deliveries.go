package checker

import (
	"maps"
	"slices"
	"time"
)

// checkDeliveries checks each delivery by itself.
func (f *facts) checkDeliveries() {
	wrong := map[string]bool{} // events that are reported already
	for _, d := range f.deliveries {
		if wrong[d.Event] {
			continue
		}
		e := f.byID[d.Event]
		wrong[d.Event] = true
		switch {
		case e == nil || !e.stands:
			f.broken(RuleRolledBack, d.Event, "%s delivered it, but it %s", d.process, f.fate(d.Event))
		case d.begin.Before(e.written) || d.begin.Before(e.tx.commit):
			f.broken(RuleAfterCommit, d.Event, "%s delivered it %v before its transaction began to commit", d.process, latest(e.written, e.tx.commit).Sub(d.begin))
		case !slices.Contains(f.Promise.listeners(e.Type), d.Listener):
			f.broken(RuleSubscriptions, d.Event, "it was delivered to %q, which does not listen to %s", d.Listener, e.Type)
		default:
			wrong[d.Event] = false
		}
	}
}

// checkRepeats checks each delivery to a listener against the delivery before. A delivery that did
// not succeed and is over needs no explanation.
func (f *facts) checkRepeats() {
	for _, t := range inOrder(f.to) {
		if e := f.byID[t.Event]; e == nil || !e.stands {
			continue
		}
		deliveries := f.to[t]
		for i := 1; i < len(deliveries); i++ {
			f.checkRepeat(deliveries[i-1], deliveries[i])
		}
	}
}

func (f *facts) checkRepeat(before, again *delivery) {
	beside := before.end.After(again.begin)
	if !beside && before.result != Done && before.result != "" {
		return
	}
	if before.result != "" || beside {
		f.report.Duplicates++
	}
	rule, what := f.judge(before, again)
	if rule == "" {
		if before.result != "" || beside {
			f.report.Explained++
		}
		return
	}
	how := "after"
	if beside {
		how = "beside"
	}
	f.broken(rule, again.Event, "%s delivered %v again, %v after the beginning and %s the delivery by %s (%s)%s",
		again.process, again.Target, again.begin.Sub(before.begin).Round(time.Microsecond), how, before.process, before.result, what)
}

// judge finds the rule that a repeat breaks. The rule is empty if the repeat breaks no rule.
func (f *facts) judge(before, again *delivery) (rule Rule, what string) {
	switch {
	case f.explains(before, again.begin, Kill, Stop, Network, Server, Clock), f.late(before, again), f.lateBefore(before), f.overtaken(before, again):
		return "", ""
	case f.explains(before, again.begin, Terminate):
		// A Close that returns no error has stored each success, but releases an event
		// of which another listener was cut off, or did not begin.
		closed, ok := f.closed[before.process]
		if before.result != Done || !ok || closed.Error != "" || f.sibling(before, again, Dropped, "") || f.leftOut(before) {
			return "", ""
		}
		return RuleClosed, ": that process closed without an error in between"
	case before.result == Done && f.sibling(before, again, Failed, Later, Buried):
		return RuleSubscriptions, ": another listener failed in between"
	case f.faults.harm() == 0:
		return RuleTwice, ", without a fault"
	default:
		return RuleExplained, ": no fault explains it"
	}
}

// late reports whether the repeat comes from a process that lost the lease to the delivery before.
// Only in multi mode does such a process still deliver all the events that it has queued. In the
// other modes each worker that was about to begin when the process was stopped makes one more
// delivery.
func (f *facts) late(before, again *delivery) bool {
	if f.Promise.Mode == "multi" {
		return f.faults.during(again.process, before.begin.Add(-2*f.Promise.Lease), before.begin, Stop, Network, Server, Clock)
	}
	stop, ok := f.afterStop(again)
	if ok {
		f.lateCalls[stop]++
	}
	return ok && f.lateCalls[stop] <= f.Promise.Workers
}

// lateBefore reports whether the delivery before comes from a process that had lost the lease to a still
// earlier delivery, in multi mode: the process that has the lease may deliver the event again.
func (f *facts) lateBefore(before *delivery) bool {
	return f.Promise.Mode == "multi" && slices.ContainsFunc(f.to[before.Target], func(d *delivery) bool {
		return d.process != before.process && d.begin.Before(before.begin) && f.late(d, before)
	})
}

// overtaken reports whether the delivery before is such a one, of an event that the process had when the
// fault began: the process that took over was about to begin too.
func (f *facts) overtaken(before, again *delivery) bool {
	if before.process == again.process || again.begin.After(before.end.Add(f.Promise.Lease)) {
		return false
	}
	written := f.byID[before.Event].tx.commit
	if f.Promise.Mode == "multi" {
		return f.faults.since(written, before.process, before.begin.Add(-2*f.Promise.Lease), before.begin, Stop, Network, Server, Clock)
	}
	stop, ok := f.afterStop(before)
	if ok = ok && !stop.from.Before(written); ok {
		f.lateCalls[stop]++
	}
	return ok && f.lateCalls[stop] <= f.Promise.Workers
}

// sibling reports whether, between two deliveries to a listener, a delivery to another listener of
// the event ended with one of the results.
func (f *facts) sibling(before, again *delivery, results ...string) bool {
	for _, t := range f.targets(f.byID[before.Event]) {
		if t != before.Target && slices.ContainsFunc(f.to[t], func(d *delivery) bool {
			return slices.Contains(results, d.result) && !d.end.Before(before.begin) && d.begin.Before(again.begin)
		}) {
			return true
		}
	}
	return false
}

// leftOut reports whether a process that delivered an event to a listener did not deliver the event
// to all listeners.
func (f *facts) leftOut(before *delivery) bool {
	return slices.ContainsFunc(f.targets(f.byID[before.Event]), func(t Target) bool {
		return !slices.ContainsFunc(f.to[t], func(d *delivery) bool { return d.process == before.process })
	})
}

// checkAttempts checks [RuleAttempts].
func (f *facts) checkAttempts() {
	for _, t := range inOrder(f.to) {
		replays := slices.Concat(f.replays[t], f.replays[Target{Event: t.Event}])
		slices.SortFunc(replays, time.Time.Compare)
		failed := 0
		if e := f.byID[t.Event]; e != nil && f.Promise.Endless[e.Type] {
			continue
		}
		for _, d := range f.to[t] {
			for len(replays) > 0 && !replays[0].After(d.begin) {
				failed, replays = 0, replays[1:]
			}
			if d.result != Failed || f.faults.during(d.process, d.begin, d.end.Add(f.Promise.Lease)) {
				continue
			}
			if failed++; failed > f.Promise.MaxAttempts {
				f.broken(RuleAttempts, t.Event, "%d deliveries of %v failed; MaxAttempts is %d", failed, t, f.Promise.MaxAttempts)
				break
			}
		}
	}
}

// checkOneProcess checks [RuleOneProcess].
func (f *facts) checkOneProcess() {
	if !f.Promise.held() {
		return
	}
	longest := map[string]*delivery{} // of each process, the delivery that ends last
	told := map[*delivery]bool{}
	for _, d := range f.deliveries {
		for _, process := range slices.Sorted(maps.Keys(longest)) {
			other := longest[process]
			if process == d.process || !other.end.After(d.begin) || told[other] || f.explains(other, d.begin) {
				continue
			}
			told[other] = true
			f.broken(RuleOneProcess, d.Event, "%s began while %s delivered %v", d.process, process, other.Target)
		}
		if last := longest[d.process]; last == nil || d.end.After(last.end) {
			longest[d.process] = d
		}
	}
}

// checkOperators checks [RuleOperators].
func (f *facts) checkOperators() {
	for _, t := range inOrder(f.replays) {
		last := slices.MaxFunc(f.replays[t], time.Time.Compare)
		e := f.byID[t.Event]
		if e == nil || f.deleted[t] || f.blocked(e) || f.expiredAfter(e, last) || e.mayBeCancelled() {
			continue
		}
		again := func(t Target) bool {
			return slices.ContainsFunc(f.to[t], func(d *delivery) bool { return !d.begin.Before(last) })
		}
		targets := []Target{t}
		if t.Listener == "" {
			targets = f.targets(e)
		}
		if !slices.ContainsFunc(targets, again) {
			f.broken(RuleOperators, t.Event, "the dead letter %v was replayed and not delivered again", t)
		}
	}
	for _, t := range inOrder(f.gone) {
		if row, ok := f.Rows[t]; ok {
			f.broken(RuleOperators, t.Event, "the dead letter %v was deleted, and its row is %s", t, row.Status)
		}
	}
}

// checkClosed checks [RuleClosed], except for repeats.
func (f *facts) checkClosed() {
	for _, d := range f.deliveries {
		closed, ok := f.closed[d.process]
		switch {
		case !ok:
		case d.begin.After(closed.At):
			f.broken(RuleClosed, d.Event, "%s began %v after it was closed", d.process, d.begin.Sub(closed.At))
		case closed.Error == "" && (d.result == "" || d.end.After(closed.At)):
			f.broken(RuleClosed, d.Event, "%s closed without an error while it delivered %v", d.process, d.Target)
		}
	}
}
