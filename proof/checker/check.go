package checker

import "fmt"

// Check holds a history against the rules.
func Check(h History) Report {
	f := arrange(h)
	f.checkTransactions()
	f.checkRows()
	f.checkEffects()
	f.checkDeliveries()
	f.checkRepeats()
	f.checkAttempts()
	f.checkKeys()
	f.checkOneProcess()
	f.checkOperators()
	f.checkClosed()
	f.checkExpires()
	f.checkCounted()
	f.checkPaused()
	f.checkDrains()
	f.checkBounded()
	f.checkUnique()
	f.checkTakenBack()
	f.checkRequests()
	f.figures()
	return f.report
}

func (f *facts) broken(rule Rule, event, format string, args ...any) {
	f.report.Violations = append(f.report.Violations, Violation{Rule: rule, Event: event, Text: fmt.Sprintf(format, args...)})
}

func (f *facts) brokenKey(rule Rule, key, event, format string, args ...any) {
	f.report.Violations = append(f.report.Violations, Violation{Rule: rule, Key: key, Event: event, Text: fmt.Sprintf(format, args...)})
}

// figures fills in the report's figures.
func (f *facts) figures() {
	r := &f.report
	for _, tx := range f.txs {
		r.Transactions++
		if f.Orders[tx.id] {
			r.Committed++
		}
		if tx.ended == OpUnknown || tx.ended == "" {
			r.Unknown++
		}
	}
	for _, e := range f.events {
		r.Events++
		if e.stands {
			r.Standing++
		}
		if !e.keptAt.IsZero() && f.Orders[e.tx.id] && !e.taken {
			r.KeptOut++
		}
		for _, c := range e.changes {
			r.Changed++
			if c.Does == Cancel {
				r.Cancelled++
			}
		}
	}
	for _, d := range f.deliveries {
		r.Deliveries++
		switch d.result {
		case Done:
			r.Succeeded++
		case Failed, Buried:
			r.Failed++
		case "":
			r.Interrupted++
		}
	}
	for _, row := range f.Rows {
		switch row.Status {
		case statusDone:
			r.Done++
		case statusDead:
			r.Dead++
		}
	}
	for _, n := range f.Effects {
		r.Effects += n
	}
	for _, times := range f.replays {
		r.Replayed += len(times)
	}
	for _, k := range f.requests {
		k.count(r)
	}
	r.Deleted, r.Faults, r.ChanceExplained = len(f.deleted), f.faults.harm(), f.chance()
	if n := len(f.Records); n > 0 {
		r.Span = f.Records[n-1].At.Sub(f.Records[0].At)
	}
}
