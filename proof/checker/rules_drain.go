package checker

import (
	"slices"
	"time"
)

// drain is a Drain of a process.
type drain struct {
	began, ended time.Time // ended is far if the process died
	result       Record
	deliveries   []*delivery
}

// checkDrains checks [RuleDrain].
func (f *facts) checkDrains() {
	of := map[string][]*drain{}
	var processes []string
	for _, r := range f.Records {
		switch drains := of[r.Process]; r.Op {
		case OpDraining:
			if drains == nil {
				processes = append(processes, r.Process)
			}
			of[r.Process] = append(drains, &drain{began: r.At, ended: far})
		case OpDrained:
			if len(drains) == 0 || drains[len(drains)-1].ended != far || r.Drained == nil {
				f.broken(RuleRecords, "", "a Drain of %s ended that had not begun", r.Process)
				continue
			}
			last := drains[len(drains)-1]
			last.ended, last.result = r.At, r
		default:
		}
	}
	for _, d := range f.deliveries {
		if drains := of[d.process]; drains != nil {
			f.assign(d, drains)
		}
	}
	for _, process := range processes {
		for _, d := range of[process] {
			if d.ended != far && d.result.Error == "" && !f.faults.during(process, d.began.Add(-2*f.Promise.Lease), d.ended) {
				f.checkDrain(process, d)
			}
		}
	}
}

// assign finds the Drain of a delivery.
func (f *facts) assign(d *delivery, drains []*drain) {
	i := slices.IndexFunc(drains, func(of *drain) bool { return !d.begin.Before(of.began) && !d.begin.After(of.ended) })
	switch {
	case i < 0:
		f.broken(RuleDrain, d.Event, "%s, which only drains, delivered it outside of a Drain", d.process)
	case drains[i].result.Error == "" && drains[i].ended != far && d.end.After(drains[i].ended):
		f.broken(RuleDrain, d.Event, "%s was still delivering it when its Drain had returned", d.process)
	default:
		drains[i].deliveries = append(drains[i].deliveries, d)
	}
}

// checkDrain checks a Drain that no fault struck. An event with several listeners may count as one
// success, or as several.
func (f *facts) checkDrain(process string, d *drain) {
	events, succeeded, targets := map[string]bool{}, map[string]bool{}, map[Target]bool{}
	done, failed := 0, 0
	for _, of := range d.deliveries {
		if targets[of.Target] {
			f.broken(RuleDrain, of.Event, "%s delivered %v twice in a Drain", process, of.Target)
			return
		}
		targets[of.Target] = true
		switch of.result {
		case Done:
			done++
			succeeded[of.Event] = true
		case Failed, Dropped:
			failed++
		}
		if of.result != Dropped {
			events[of.Event] = true
		}
	}
	switch got := d.result.Drained; {
	case len(events) > got.Most:
		f.broken(RuleDrain, "", "%s delivered %d events in a Drain of at most %d", process, len(events), got.Most)
	case got.Done < len(succeeded) || got.Done > done:
		f.broken(RuleDrain, "", "a Drain of %s returned %d successes; %d deliveries of %d events succeeded", process, got.Done, done, len(succeeded))
	case got.Failed > failed:
		f.broken(RuleDrain, "", "a Drain of %s returned %d failures; %d deliveries failed", process, got.Failed, failed)
	}
}
