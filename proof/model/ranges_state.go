package model

// The rows that the model has room for, and the places. A retry, a deferral, and a replay lead to
// the last place.
const (
	maxRows   = 2
	maxRanges = 3
)

// Title is the title under which a process has an event in hand.
type Title uint8

const (
	noTitle    Title = iota
	rangeTitle       // the event was read in a range of the process
	goneTitle        // the same, and the process no longer has the range
	leaseTitle       // the row is leased
)

// Holding is an event in the hands of a process.
type Holding struct {
	Phase Phase
	Title Title
	After uint8 // the beginning of the range in which the event was read
	// Names: the row still has what the next mark will name: the lease, or the available_at with which
	// the event was read.
	Names   bool
	Seen    uint8 // the attempts that the envelope shows
	Counts  bool  // the death of a process that had the row as a suspect is an attempt
	Outcome Outcome
	Storing bool // a statement with the outcome was begun
	Shown   bool // available_at is the time that the outcome set
	Unsure  bool // a mark that names available_at got no answer
	// Of the mark whose answer is outstanding: whether it changed the row, and whether the event got a
	// lease meanwhile.
	Changed, Handed bool
	// Past: the outcome set an available_at that the row no longer has. Again: the event was read with
	// that available_at. In a broken model.
	Past, Again bool
	// Notes of the checker, as in Delivery. Twice: another listener of the process has the event.
	Outlived, Counted, Old, Twice bool
}

// leased reports whether the row is under a lease of the delivery.
func (d Holding) leased() bool { return d.Title == leaseTitle && d.Names }

// RowClaim is a claim that was carried out and whose answer is outstanding. The process reads, adds
// ranges and claims only after the answer.
type RowClaim struct {
	Row           uint8 // and one; zero: no claim
	Names         bool  // the row is still under this lease
	Seen          uint8
	Counts        bool
	Suspect       bool // the claim took a suspect, from the range that begins behind After
	After         uint8
	Outlived, Old bool
}

// Peer is the memory of a process, except for what it knows of its ranges (Range).
type Peer struct {
	Hand     [maxRows]Holding
	Claim    RowClaim
	Releases [maxRows]bool // the row is under a lease that the process gives back
	Place    uint8         // that the pass has reached
	// Waits is a note of the checker: the rows that have been free since the pass began.
	Waits Events
}

// Range is a range of the ledger, and what its process knows of it. The range has the places behind
// After, up to Upto.
type Range struct {
	After, Upto uint8
	Holder      uint8 // the process and one; zero: no range
	Expired     bool  // by the database's clock
	Suspect     bool  // it was taken over, as its name says, and its rows are suspects

	Known  bool // the process knows that it has the range
	Doubt  bool // the process lives, and counts the range as left
	Over   bool // by the process's own clock
	Read   bool // its rows were read; of a suspect range: no row is left
	Unsure bool // a claim of its suspects got no answer
}

func (r Range) has(place uint8) bool { return r.Holder != 0 && r.After < place && place <= r.Upto }

// RangedRow is the row of an event.
type RangedRow struct {
	Committed bool
	Status    Status
	Attempts  uint8
	Place     uint8
	Lease     uint8 // the process and one; zero: no lease
	Suspect   bool  // as the name of the lease says
	Expired   bool
	// Notes of the checker. Begun: as in State. Loose: the last delivery that began had no lease, and
	// its outcome is not stored. Lost: how many such deliveries counted no attempt, because the event
	// was taken from a range that was lost.
	Delivered, Loose bool
	Begun, Lost      uint8
	// Postponed: available_at is after created_at. The row is leased before it is delivered.
	Postponed bool
	// Cancelled: a transaction deleted the row, and committed.
	Cancelled bool
}

// Doing is the purpose of a statement.
type Doing uint8

const (
	nothing Doing = iota
	doMark
	doSuspect
	doPostponed
	doTakeOver
	doAdd
	doDrop
	doRenew
	doTake
)

func (d Doing) String() string {
	return [...]string{"", marksRow, takesSuspect, takesPostponed, takesOver, addsRange, dropsRange, renewsRange, takesRange}[d]
}

// LateRow is a statement about a row that its client gave up and that the server may still carry out.
type LateRow struct {
	What        Doing
	Process     uint8
	Row         uint8
	Title       Title
	Names       bool // as in Holding
	Again       bool
	Outcome     Outcome
	Attempts    uint8
	After, Upto uint8 // of a claim of suspects
	Orphan      bool  // the process died since
}

// LateSet is a compare-and-set that its client gave up. It names the ledger's present version.
type LateSet struct {
	What        Doing
	Process     uint8
	After, Upto uint8
	Drops       uint8 // the beginnings of the ranges that it drops
	Orphan      bool
}

// RangeState is everything that the model knows.
type RangeState struct {
	Rows   [maxRows]RangedRow
	Ledger [maxRanges]Range // in the order of their places, the empty ones last
	Peers  [2]Peer
	Late   LateRow
	Set    LateSet

	Faults, Replays uint8
	// Left: a process died, or closed without having stored an outcome.
	Left bool
}

// free: the row is due and has no lease.
func (r RangedRow) free() bool { return r.Committed && r.Status.pending() && r.Lease == 0 }

// covering returns the range that has the place.
func (s *RangeState) covering(place uint8) *Range {
	for i := range s.Ledger {
		if s.Ledger[i].has(place) {
			return &s.Ledger[i]
		}
	}
	return nil
}

// at returns the range that begins behind a place.
func (s *RangeState) at(after uint8) *Range {
	for i := range s.Ledger {
		if r := &s.Ledger[i]; r.Holder != 0 && r.After == after {
			return r
		}
	}
	return nil
}

// lasts reports whether an event is in hand under a right that lasts by the process's own clock.
func (s *RangeState) lasts(d Holding) bool {
	return d.Title == leaseTitle || d.Title == rangeTitle && !s.at(d.After).Over
}

// finished reports whether nothing of a range is in hand.
func (s *RangeState) finished(r Range) bool {
	if r.Suspect {
		return r.Read
	}
	for _, d := range s.Peers[r.Holder-1].Hand {
		if d.Title == rangeTitle && d.After == r.After {
			return false
		}
	}
	return r.Read || r.Over
}

// untitle ends the title of the events of a range that its process has no more.
func (s *RangeState) untitle(r Range) {
	if r.Holder == 0 || r.Suspect || !r.Known {
		return
	}
	for row := range s.Peers[r.Holder-1].Hand {
		if d := &s.Peers[r.Holder-1].Hand[row]; d.Title == rangeTitle && d.After == r.After {
			d.Title, d.After = goneTitle, 0
		}
	}
}

// leaseEnds: the row is no longer under the lease that it had.
func (s *RangeState) leaseEnds(row int) {
	for p := range s.Peers {
		n := &s.Peers[p]
		if n.Hand[row].Title == leaseTitle {
			n.Hand[row].Names = false
		}
		if int(n.Claim.Row) == row+1 {
			n.Claim.Names = false
		}
		n.Releases[row] = false
	}
	if int(s.Late.Row) == row {
		s.Late.Names = s.Late.Names && s.Late.Title != leaseTitle
	}
	s.Rows[row].Lease, s.Rows[row].Suspect, s.Rows[row].Expired = 0, false, false
}

// moves: the row gets another available_at.
func (s *RangeState) moves(row int) {
	for p := range s.Peers {
		if d := &s.Peers[p].Hand[row]; d.Title != leaseTitle {
			d.Names = false
		}
	}
	if int(s.Late.Row) == row && s.Late.Title != leaseTitle {
		s.Late.Names = false
	}
}

// dueAgain is a retry, a deferral or a replay: the row goes to the last place.
func (s *RangeState) dueAgain(row int, last uint8) {
	s.moves(row)
	s.Rows[row].Postponed = true
	s.Rows[row].Place = last
	for p := range s.Peers {
		s.Peers[p].Hand[row].Shown = false
	}
}

// waits keeps the checker's note of the rows that have been free since a pass began: in no range, or
// in a range of the process.
func (s *RangeState) waits() {
	for p := range s.Peers {
		var free Events
		n := &s.Peers[p]
		for row, r := range s.Rows {
			if of := s.covering(r.Place); r.free() && (of == nil || of.readable(p) && n.Hand[row].Phase == none) {
				free |= 1 << row
			}
		}
		if n.Place == 0 {
			n.Waits = free
		} else {
			n.Waits &= free
		}
	}
}

// readable reports whether a process may read a range.
func (r *Range) readable(p int) bool {
	return int(r.Holder) == p+1 && r.Known && !r.Suspect && !r.Over
}

// sorted brings the ledger in order.
func (s *RangeState) sorted() {
	l := &s.Ledger
	for i := 1; i < len(l); i++ {
		for j := i; j > 0 && (l[j-1].Holder == 0 && l[j].Holder != 0 ||
			l[j].Holder != 0 && l[j].After < l[j-1].After); j-- {
			l[j-1], l[j] = l[j], l[j-1]
		}
	}
}

// canon clears everything that has no effect any more.
func (m Ranges) canon(s RangeState) RangeState {
	for row := range s.Rows {
		s.Rows[row].Postponed = s.Rows[row].Postponed && m.Cancels
	}
	if m.Broken != "" {
		return s
	}
	if l := s.Late; l.What == doMark && !l.Names {
		s.Late = LateRow{}
	}
	for p := range s.Peers {
		for row := range s.Peers[p].Hand {
			d := &s.Peers[p].Hand[row]
			if d.Phase > running {
				d.Outlived, d.Counted, d.Twice, d.Counts = false, false, false, false
			}
			if d.Outcome.final() {
				d.Shown = false
			}
		}
	}
	return s
}

func (m Ranges) twin(s RangeState) RangeState {
	other := func(p *uint8) {
		if *p != 0 {
			*p = 3 - *p
		}
	}
	s.Peers[0], s.Peers[1] = s.Peers[1], s.Peers[0]
	for i := range s.Rows {
		other(&s.Rows[i].Lease)
	}
	for i := range s.Ledger {
		other(&s.Ledger[i].Holder)
	}
	if s.Late.What != nothing {
		s.Late.Process = 1 - s.Late.Process
	}
	if s.Set.What != nothing {
		s.Set.Process = 1 - s.Set.Process
	}
	return s
}
