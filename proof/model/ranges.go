package model

import "fmt"

// Ranges is the model of MultiNode's rights over ranges, as with ClaimOptions.Ranges: two processes, a
// ledger of ranges, and up to two rows at places in order. Each comment names the file of package
// outbox, or of its store, that a step stands for.
//
// There is no clock, and every event is due at once. By a process's own clock, the right to a
// range ends before it ends in the database, because the process counts from before it read the
// ledger. A worker looks at the process's clock and begins the listener in a single step: a process that
// is stopped between the two is like a listener that is stopped as it begins.
//
// A compare-and-set that succeeds found the version that the process had read. So reading the ledger
// and setting it are a single step. A set leaves out the finished ranges of the process.
//
// Names reports whether what a statement names is still in the row. No name of a lease is used
// twice, and no available_at comes back, so a statement whose Names is false changes nothing ever
// after.
type Ranges struct {
	Rows        uint8
	MaxAttempts uint8
	Faults      uint8 // that may happen
	Replays     uint8 // of a dead event
	// Hot: rows are also written under a lease of the process that writes.
	Hot bool
	// Returns: listeners defer the event, and processes that close give events back.
	Returns bool
	// Succeeds: each listener succeeds.
	Succeeds bool
	// Poison: the event kills each process that delivers it, and there is no other fault.
	Poison bool
	// Passes: the search for a gap goes on from the place that the process has reached. Otherwise
	// each search begins at zero.
	Passes bool
	// Cancels: rows are also written with a delay, and transactions cancel postponed events. No process
	// changes the row between the DELETE and COMMIT, because the row is locked: so both are a single step.
	Cancels bool
	Broken  Mutation
}

// RangeStep is a step of the model.
type RangeStep struct {
	Process int
	Row     int // -1: none
	What    string
	More    string
	// Of statements about a row: whether it changed the row, and had the right to.
	Changed, Lawful bool
	Counted         bool // the claim counted an attempt
}

func (s RangeStep) String() string {
	text := s.What
	if s.Process >= 0 {
		text = fmt.Sprintf("process %d %s", s.Process, text)
	}
	if s.Row >= 0 {
		text += fmt.Sprintf(" row %d", s.Row+1)
	}
	return text + s.More
}

// The steps of the ranges, in words.
const (
	commits      = "the transaction commits:"
	commitsLater = "the transaction commits, with a delay that is over:"
	cancels      = "a transaction cancels"
	commitsHot   = "commits under its own lease, and takes in hand,"
	addsRange    = "adds a range"
	readsRange   = "reads the rows of its range"
	dropsRange   = "drops its range"
	renewsRange  = "renews its range"
	takesRange   = "takes an expired range over"
	findsNone    = "finds no suspect left"
	passesOver   = "finds no more free row, the pass is over"
	ownClock     = "has no right to its range any more, by its own clock"
	rangeLapses  = "held a range until now: the range expires"
	crashes      = "dies and starts again"
	closesShort  = "closes without an answer to its marks, and starts again"

	beginsRow   = "begins the listener of"
	endsRow     = "ends the listener of"
	exhaustsRow = "finds no attempt left for"
	returnsRow  = "lets go of"
	abandonsRow = "gives up the outcome of"

	marksRow       = "marks"
	markHeard      = "hears the answer to its mark of"
	markUnheard    = "gets no answer to its mark of"
	takesSuspect   = "claims, as suspect,"
	takesPostponed = "claims, as postponed,"
	takesOver      = "takes over the expired lease of"
	claimHeard     = "hears the answer to its claim of"
	claimUnheard   = "gets no answer to its claim of"
	releasesRow    = "gives back the lease of"
	renewsRow      = "renews the lease of"
	leaseLapses    = "the lease expires of"
	replaysRow     = "an operator replays"
	neverArrives   = "the statement that was given up never arrives"
)

// Model makes the model for the checker.
func (m Ranges) Model() Model[RangeState, RangeStep] {
	var start RangeState
	for row := range m.Rows {
		start.Rows[row].Place = row + 1
	}
	return Model[RangeState, RangeStep]{
		Start: start, Next: m.next, Canon: m.canon, Twin: m.twin, Rules: m.rules(),
		Settled: func(s RangeState) bool {
			for row := range m.Rows {
				if r := s.Rows[row]; !r.Committed || r.Status.pending() {
					return false
				}
			}
			return s.Ledger == [maxRanges]Range{}
		},
	}
}

// last is the last place.
func (m Ranges) last() uint8 { return m.Rows + 1 }

type rangeSteps struct {
	Ranges
	from  RangeState
	yield func(RangeStep, bool, RangeState)
}

func (x *rangeSteps) emit(step RangeStep, fault bool, s RangeState) {
	s.sorted()
	s.waits()
	x.yield(step, fault, s)
}

func (x *rangeSteps) take(step RangeStep, change func(s *RangeState)) {
	s := x.from
	change(&s)
	x.emit(step, false, s)
}

func (x *rangeSteps) fault(step RangeStep, change func(s *RangeState)) {
	if x.from.Faults >= x.Faults {
		return
	}
	s := x.from
	s.Faults++
	change(&s)
	x.emit(step, true, s)
}

func (m Ranges) next(from RangeState, yield func(RangeStep, bool, RangeState)) {
	x := &rangeSteps{m, from, yield}
	for row := range int(m.Rows) {
		x.row(row)
	}
	for i := range from.Ledger {
		if from.Ledger[i].Holder != 0 {
			x.time(i)
		}
	}
	x.lateSet()
	x.lateRow()
	for p := range from.Peers {
		x.ledger(p)
		x.claimAnswer(p)
		for row := range int(m.Rows) {
			x.deliver(p, row)
			x.mark(p, row)
			x.claim(p, row)
			x.lease(p, row)
		}
		x.crash(p)
		x.close(p)
	}
}

// row is what happens to a row from outside: its transaction, time, and operators.
func (x *rangeSteps) row(row int) {
	r := x.from.Rows[row]
	if !r.Committed {
		x.take(RangeStep{-1, row, commits, "", false, false, false}, func(s *RangeState) { s.Rows[row].Committed = true })
		if x.Cancels {
			x.take(RangeStep{Process: -1, Row: row, What: commitsLater}, func(s *RangeState) {
				s.Rows[row].Committed, s.Rows[row].Postponed = true, true
			})
		}
		for p := range x.from.Peers {
			if x.Hot {
				x.take(RangeStep{Process: p, Row: row, What: commitsHot}, func(s *RangeState) {
					s.Rows[row].Committed, s.Rows[row].Lease = true, uint8(p)+1
					s.Peers[p].Hand[row] = Holding{Phase: queued, Title: leaseTitle, Names: true}
				})
			}
		}
	}
	if r.Lease != 0 && !r.Expired && r.Status.pending() {
		x.leaseLapses(row)
	}
	if x.Cancels && r.free() && (r.Postponed || x.Broken == CancelsAny) {
		x.take(RangeStep{Process: -1, Row: row, What: cancels}, func(s *RangeState) {
			s.Rows[row].Status, s.Rows[row].Cancelled = Done, true
		})
	}
	if r.Status == Dead && x.from.Replays < x.Replays {
		x.take(RangeStep{Process: -1, Row: row, What: replaysRow}, func(s *RangeState) {
			s.Replays++
			s.leaseEnds(row)
			s.dueAgain(row, x.last())
			s.Rows[row].Status, s.Rows[row].Attempts, s.Rows[row].Begun, s.Rows[row].Lost = New, 0, 0, 0
			s.Rows[row].Loose = false
			for p := range s.Peers {
				if d := &s.Peers[p].Hand[row]; d.Phase != none {
					d.Counted, d.Old = false, true
				}
				s.Peers[p].Claim.Old = int(s.Peers[p].Claim.Row) == row+1
			}
		})
	}
}

// leaseLapses ends a lease by the database's clock: a fault while a live process has the lease.
func (x *rangeSteps) leaseLapses(row int) {
	step := x.take
	if x.from.known(row) {
		step = x.fault
	}
	step(RangeStep{Process: -1, Row: row, What: leaseLapses}, func(s *RangeState) {
		s.Rows[row].Expired = true
		for p := range s.Peers {
			n := &s.Peers[p]
			if d := &n.Hand[row]; d.leased() {
				d.Outlived = true
			}
			if int(n.Claim.Row) == row+1 && n.Claim.Names {
				n.Claim.Outlived, n.Hand[row].Outlived = true, n.Hand[row].Phase != none
			}
		}
	})
}

// time ends a range: first by the clock of the process, then by the database's. That is a fault
// while the process renews the range: it has events of the range in hand, or claims suspects.
func (x *rangeSteps) time(i int) {
	r := x.from.Ledger[i]
	p := int(r.Holder) - 1
	if r.Known && !r.Over {
		step := x.fault
		if r.Unsure && x.Broken != RenewsUnsure {
			step = x.take
		}
		step(RangeStep{Process: p, Row: -1, What: ownClock}, func(s *RangeState) { s.Ledger[i].Over = true })
	}
	if !r.Expired && (!r.Known || r.Over) {
		x.take(RangeStep{Process: p, Row: -1, What: rangeLapses}, func(s *RangeState) { x.expires(s, i) })
	}
}

// expires: a range expires by the database's clock. So does the deadline of renewals, and of claims
// in the range.
func (x *rangeSteps) expires(s *RangeState, i int) {
	r := &s.Ledger[i]
	p := int(r.Holder) - 1
	r.Expired = true
	if l := s.Set; l.What == doRenew && l.After == r.After && x.Broken != RenewsExpired {
		s.Set = LateSet{}
	}
	if l := s.Late; l.What == doSuspect && int(l.Process) == p && l.After == r.After && x.Broken != ClaimsLate {
		s.Late = LateRow{}
	}
	if !r.Known || r.Suspect {
		return
	}
	for row := range s.Peers[p].Hand {
		if d := &s.Peers[p].Hand[row]; d.Title == rangeTitle && d.After == r.After && d.Phase == running {
			d.Outlived = true
		}
	}
}

// crash kills a process and starts it again.
func (x *rangeSteps) crash(p int) {
	alive := x.from.Peers[p] != Peer{Waits: x.from.Peers[p].Waits}
	for _, r := range x.from.Ledger {
		alive = alive || int(r.Holder) == p+1 && (r.Known || r.Doubt)
	}
	step := x.fault
	if x.Poison {
		step, alive = x.take, false
		for _, d := range x.from.Peers[p].Hand {
			alive = alive || d.Phase == running
		}
	}
	if alive {
		step(RangeStep{Process: p, Row: -1, What: crashes}, func(s *RangeState) { s.restarts(p) })
	}
}

// close ends a process that cannot store its outcomes, and starts it again. Nothing else is in hand
// then, and the ranges of the events are left to expire.
func (x *rangeSteps) close(p int) {
	n, unsure := x.from.Peers[p], false
	if !x.Returns || n.Claim.Row != 0 {
		return
	}
	for _, d := range n.Hand {
		if d.Phase != none && (d.Phase != answered || !d.Unsure) {
			return
		}
		unsure = unsure || d.Phase != none
	}
	if unsure {
		x.take(RangeStep{Process: p, Row: -1, What: closesShort}, func(s *RangeState) { s.restarts(p) })
	}
}

// restarts: a process forgets everything, and its ranges expire.
func (s *RangeState) restarts(p int) {
	s.Peers[p], s.Left = Peer{}, true
	for i := range s.Ledger {
		if r := &s.Ledger[i]; int(r.Holder) == p+1 {
			*r = Range{After: r.After, Upto: r.Upto, Holder: r.Holder, Expired: r.Expired, Suspect: r.Suspect}
		}
	}
	s.Late.Orphan = s.Late.Orphan || s.Late.What != nothing && int(s.Late.Process) == p
	s.Set.Orphan = s.Set.Orphan || s.Set.What != nothing && int(s.Set.Process) == p
}
