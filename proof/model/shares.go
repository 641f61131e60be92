package model

import "fmt"

// Shares is the model of limits of all processes together (outbox/internal/shares): processes
// divide parts. A row has the shares, and a process replaces the row by compare-and-set. Each comment
// names the function that a step stands for.
//
// By the process's own clock a share ends before it ends in the row, as the hold does: see [Holds].
// The places of listeners that run are not given up. The model has no rate.
type Shares struct {
	Processes int8 // two or three
	Parts     int8
	Faults    uint8
	Broken    Mutation
}

const sharers = 3

// Entry is a process in the row.
type Entry struct {
	Parts   int8
	Listed  bool
	Wants   bool
	Expired bool
	Rank    int8 // the order in which processes get parts
}

// ShareSet is a compare-and-set on the way.
type ShareSet struct {
	Sent    bool
	Current bool // the row has the version that the process read
	Row     [sharers]Entry
	Acts    int8 // what the process acts on after the answer
}

// Sharer is a process.
type Sharer struct {
	Works   bool // it has events
	Acts    int8 // the parts on which it acts
	Running int8 // listeners, one for each part
	Turn    bool // since it got parts, time has passed
	Sends   ShareSet
	Late    ShareSet // the process does not wait for the answer
}

// ShareState is everything that the model knows.
type ShareState struct {
	Row     [sharers]Entry
	Sharers [sharers]Sharer
	Served  [sharers]bool // a listener ran; a note of the checker
	Faults  uint8
}

// ShareStep is a step of the model.
type ShareStep struct {
	Process int
	What    string
}

func (s ShareStep) String() string { return fmt.Sprintf("process %d %s", s.Process, s.What) }

// The steps of shares, in words.
const (
	sendsShares = "reads the row and sends its share"
	setsShares  = "has the row replaced"
	lateShares  = "has the row replaced, and gets no answer"
	fasterShare = "is told that another process was faster"
	givesUp     = "does not wait for the answer"
	beginsOne   = "begins a listener"
	endsOne     = "ends a listener"
	stopsActing = "finds its share over by its own clock"
	shareEnds   = "held its share until now: the share ends"
	passesTurn  = "has had its share for a turn"
	stopsWork   = "has no more events"
)

// Model makes the model for the checker.
func (m Shares) Model() Model[ShareState, ShareStep] {
	start := ShareState{}
	for p := range m.Processes {
		start.Sharers[p].Works = true
	}
	return Model[ShareState, ShareStep]{
		Start: start, Next: m.next, Rules: m.rules(),
		Settled: func(s ShareState) bool {
			for p := range m.Processes {
				if s.Row[p].Listed || s.Sharers[p].Running > 0 {
					return false
				}
			}
			return s.allServed(m.Processes)
		},
	}
}

type shareSteps struct {
	Shares
	from  ShareState
	yield func(ShareStep, bool, ShareState)
}

func (x *shareSteps) take(p int, what string, change func(s *ShareState, p *Sharer)) {
	s := x.from
	change(&s, &s.Sharers[p])
	x.yield(ShareStep{p, what}, false, s)
}

func (x *shareSteps) fault(p int, what string, change func(s *ShareState, p *Sharer)) {
	if x.from.Faults >= x.Faults {
		return
	}
	s := x.from
	s.Faults++
	change(&s, &s.Sharers[p])
	x.yield(ShareStep{p, what}, true, s)
}

func (m Shares) next(from ShareState, yield func(ShareStep, bool, ShareState)) {
	x := &shareSteps{m, from, yield}
	for p := range int(m.Processes) {
		x.send(p)
		x.answer(p)
		x.work(p)
		x.end(p)
	}
}

// fair is the fair share of a process (fair in outbox/internal/shares/list.go).
func (m Shares) fair(row [sharers]Entry, p int) (parts int8, short bool) {
	var wanting, before int8
	for q, e := range row {
		if e.Listed && e.Wants {
			if wanting++; q != p && e.Rank < row[p].Rank {
				before++
			}
		}
	}
	if parts = m.Parts / wanting; before < m.Parts%wanting {
		parts++
	}
	return parts, m.Parts < wanting
}

// last is the rank behind all others.
func last(row [sharers]Entry) (rank int8) {
	for _, e := range row {
		if e.Listed {
			rank = max(rank, e.Rank+1)
		}
	}
	return rank
}

// ranked gives the ranks of a row their lowest numbers.
func ranked(row [sharers]Entry) [sharers]Entry {
	to := row
	for p, e := range row {
		to[p].Rank = 0
		for _, other := range row {
			if e.Listed && other.Listed && other.Rank < e.Rank {
				to[p].Rank++
			}
		}
		if !e.Listed {
			to[p] = Entry{}
		}
	}
	return to
}

// send is try, up to the statement.
func (x *shareSteps) send(p int) {
	now, row := x.from.Sharers[p], x.from.Row
	if now.Sends.Sent || !now.Works && !row[p].Listed {
		return
	}
	for q, e := range row {
		if e.Expired || x.Broken == SharesWithoutExpiry && q != p {
			row[q] = Entry{}
		}
	}
	if !row[p].Listed {
		row[p] = Entry{Listed: true, Rank: last(row)}
	}
	before := row[p].Parts
	row[p].Wants = now.Works
	var fair int8
	if now.Works {
		short, waits := false, false
		fair, short = x.fair(row, p)
		for q, e := range row {
			waits = waits || q != p && e.Listed && e.Wants && e.Parts == 0
		}
		if short && waits && before > 0 && now.Turn && x.Broken != SharesWithoutTurns {
			row[p].Rank = last(row)
			fair, _ = x.fair(row, p)
		}
	}
	acts := min(now.Acts, fair, before)
	parts := max(fair, min(before, now.Running))
	if x.Broken == RunningIsForgotten {
		parts = fair
	}
	if parts > before {
		free := x.Parts
		for q, e := range row {
			if q != p {
				free -= e.Parts
			}
		}
		parts = max(before, min(parts, free))
	}
	row[p].Parts, row[p].Expired = parts, false
	if parts == 0 && !now.Works {
		row[p] = Entry{}
	}
	row = ranked(row)
	if row == x.from.Row && now.Acts == min(fair, parts) { // nothing changes but the time
		return
	}
	x.take(p, sendsShares, func(_ *ShareState, p *Sharer) {
		if p.Acts = acts; x.Broken == ActsTooEarly {
			p.Acts = min(fair, parts)
		}
		if x.Broken == ShrinksTooLate {
			p.Acts = now.Acts
		}
		if p.Acts == 0 {
			p.Turn = false
		}
		p.Sends = ShareSet{Sent: true, Current: true, Row: row, Acts: min(fair, parts)}
	})
}

// answer carries a statement out, at any time.
func (x *shareSteps) answer(p int) {
	sends, late := x.from.Sharers[p].Sends, x.from.Sharers[p].Late
	if late.Sent {
		x.take(p, lateShares, func(s *ShareState, p *Sharer) {
			if x.counts(late) {
				s.replace(late.Row)
			}
			p.Late = ShareSet{}
		})
	}
	switch {
	case !sends.Sent:
		return
	case x.counts(sends):
		x.take(p, setsShares, func(s *ShareState, p *Sharer) {
			s.replace(sends.Row)
			p.Acts, p.Sends = sends.Acts, ShareSet{}
		})
	default:
		x.take(p, fasterShare, func(_ *ShareState, p *Sharer) { p.Sends = ShareSet{} })
	}
	if !late.Sent {
		x.fault(p, givesUp, func(_ *ShareState, p *Sharer) { p.Late, p.Sends = p.Sends, ShareSet{} })
	}
}

// counts reports whether a statement replaces the row.
func (x *shareSteps) counts(set ShareSet) bool {
	return set.Current || x.Broken == SharesWithoutVersions
}

// replace gives the row a new version.
func (s *ShareState) replace(row [sharers]Entry) {
	s.Row = row
	for q := range s.Sharers {
		s.Sharers[q].Sends.Current, s.Sharers[q].Late.Current = false, false
	}
}

// allServed reports whether each process had a listener that ran.
func (s ShareState) allServed(processes int8) bool {
	for p := range processes {
		if !s.Served[p] {
			return false
		}
	}
	return true
}

// work is Begin and End.
func (x *shareSteps) work(p int) {
	now := x.from.Sharers[p]
	if now.Works && now.Running < now.Acts {
		x.take(p, beginsOne, func(s *ShareState, sharer *Sharer) {
			sharer.Running++
			s.Served[p] = true
		})
	}
	if now.Running > 0 {
		x.take(p, endsOne, func(_ *ShareState, p *Sharer) { p.Running-- })
	}
	if now.Acts > 0 && !now.Turn {
		x.take(p, passesTurn, func(_ *ShareState, p *Sharer) { p.Turn = true })
	}
	if now.Works && x.from.allServed(x.Processes) { // before, processes have events without end
		x.take(p, stopsWork, func(_ *ShareState, p *Sharer) { p.Works = false })
	}
}

// end is the end of a share. A process that dies is a process that finds the share over: the share
// stays in the row until the share ends. Listeners that still run when a share ends are the bound that
// the documents name: the model lets them end before.
func (x *shareSteps) end(p int) {
	now, e := x.from.Sharers[p], x.from.Row[p]
	if now.Acts > 0 {
		x.fault(p, stopsActing, func(_ *ShareState, p *Sharer) { p.Acts, p.Turn = 0, false })
	}
	if e.Listed && !e.Expired && now.Running == 0 {
		expire := func(s *ShareState, sharer *Sharer) {
			s.Row[p].Expired = true
			if x.Broken != ShareByDatabaseClock {
				sharer.Acts, sharer.Turn = 0, false
			}
		}
		if now.Acts > 0 || now.Works && !now.Sends.Sent {
			x.fault(p, shareEnds, expire)
		} else {
			x.take(p, shareEnds, expire)
		}
	}
}
