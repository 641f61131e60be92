package shares

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/tokens"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

const (
	// Lasts is how long a share lasts unless it is renewed: the time after which the other processes
	// get the share of a process that died.
	Lasts    = 10 * time.Second
	acts     = Lasts * 4 / 5 // by the process's own clock
	patience = Lasts / 5     // of a statement
	renewal  = time.Second   // between renewals
	soon     = renewal / 5   // until the next look of a process whose share is to change
	idle     = time.Second   // without work, after which a process gives its share up
	shortest = 5 * time.Second
	tries    = 5 // to replace the row, at once
)

// turnTokens is how many tokens a part gets in a turn: the next process begins without a token.
const turnTokens = 10

// Row is the row with the shares of all processes.
type Row struct {
	// Version is the name of the call that replaced the row; empty: no call has.
	Version string
	// Now is the time of the database's clock, as of a moment after the row was asked for.
	Now time.Time
	// Value is text.
	Value string
}

// Table has the row.
type Table interface {
	// Read reads the row.
	Read(ctx context.Context) (Row, error)
	// Replace replaces the row, if its version is was, and reports whether it did. A call that returns
	// an error may be carried out later.
	Replace(ctx context.Context, was string, next Row) (bool, error)
}

// Options configure a [Share].
type Options struct {
	Limits Limits
	Table  Table
	Name   string // of the process; no other process has it
	Of     string // says to people whose limits these are
	// Kind says the same to programs: [Read] returns it.
	Kind [2]string
	// Wants reports whether there is work.
	Wants func() bool
	// Resized is called when the process acts on more parts, or on fewer. It must not block.
	Resized func(parts int)
	Log     *slog.Logger
	Attrs   []any // of the log
}

// Share is the share of this process in limits. A process asks for a share when it has work, and
// gives the share up when it has none. A Share is safe for concurrent use.
type Share struct {
	gate
	o       Options
	failing logburst.Burst
	asked   chan struct{}
	resting atomic.Bool // the goroutine waits for Ask

	// These fields belong to the goroutine.
	listed  bool // the row has this process, as far as it knows, or may have it
	renewed time.Time
	turn    time.Time // when this process got its first part
	acted   int       // as Resized was told

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // nil: not started
}

// New makes a share, which has no part yet.
func New(o Options) *Share {
	s := &Share{o: o, gate: gate{limits: o.Limits}, asked: make(chan struct{}, 1)}
	if o.Limits.Rate > 0 {
		s.bucket = tokens.New(o.Limits.Rate, 0)
	}
	s.failing = logburst.Burst{
		Log: o.Log, Level: slog.LevelError, Message: "outbox: the share in fleet-wide limits could not be renewed; trying again",
		Ended: "outbox: the share in fleet-wide limits is renewed again",
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Ask says that there is work. The call is cheap, and has no effect while the process has a share, or
// waits for a share.
func (s *Share) Ask() {
	if s.resting.Load() && s.resting.CompareAndSwap(true, false) {
		wait.Signal(s.asked)
	}
}

// Start begins to ask for shares, and to renew them. Call it once.
func (s *Share) Start() {
	s.done = make(chan struct{})
	go s.run()
}

func (s *Share) run() {
	defer close(s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.asked:
		case <-s.ctx.Done():
			return
		}
		next, err := s.look(s.ctx, true)
		switch {
		case err == nil:
			s.failing.End()
		case s.ctx.Err() == nil:
			s.failing.Add(1, append(slices.Clone(s.o.Attrs), "error", err.Error())...)
		}
		if next == wait.Never {
			s.resting.Store(true)
			if s.o.Wants() { // since the look, perhaps without a token in asked
				s.Ask()
			}
		}
		timer.Reset(next)
	}
}

// Close gives the share up, apart from the parts of work that still runs, in at most the given time.
// Close does not wait for a statement of a driver that ignores the end of a context.
func (s *Share) Close(limit time.Duration) error {
	s.cancel()
	if s.done == nil {
		return nil
	}
	defer s.failing.Flush()
	s.lower(0)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	ended, given := make(chan struct{}), error(nil)
	go func() {
		defer close(ended)
		defer cancel()
		<-s.done
		for {
			if _, given = s.look(ctx, false); given == nil || ctx.Err() != nil {
				return
			}
			wait.Sleep(ctx, 100*time.Millisecond)
		}
	}()
	if !wait.For(context.Background(), ended, limit+wait.Grace) {
		return context.DeadlineExceeded
	}
	return given
}

// errBusy is why a look fails when other processes were faster each time.
var errBusy = errors.New("other processes replaced the row each time, or a trigger, a rule or a policy skips the update")

// look asks for the share that the process needs, and says when to look again.
func (s *Share) look(ctx context.Context, open bool) (next time.Duration, err error) {
	defer s.tellSize()
	for range tries {
		wants := open && (s.o.Wants() || s.isRecent(idle))
		if !wants && !s.listed {
			return wait.Never, nil
		}
		var done bool
		if next, done, err = s.try(ctx, wants); done || err != nil {
			break
		}
		err = errBusy
	}
	if err != nil {
		return soon, err
	}
	return next, nil
}

// tellSize calls Resized after a change.
func (s *Share) tellSize() {
	if parts := s.Parts(); parts != s.acted {
		if s.acted == 0 {
			s.turn = time.Now()
		}
		s.acted = parts
		s.o.Resized(parts)
	}
}

// turnLasts is how long a process keeps its parts while others wait for a part.
func (s *Share) turnLasts() time.Duration {
	if s.limits.Rate == 0 {
		return shortest
	}
	tokens := turnTokens * float64(s.limits.Parts()) / s.limits.Rate
	return max(shortest, time.Duration(min(tokens, farthest.Seconds())*float64(time.Second)))
}

// try reads the row and replaces it; done is false when another process was faster.
//
// The process acts on fewer parts before it sends the statement, and on more parts after the answer.
// So whatever becomes of the statement, the row has at least the parts on which the process acts. By
// the process's own clock, the share ends before it ends in the row.
func (s *Share) try(ctx context.Context, wants bool) (next time.Duration, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began, total := time.Now(), s.limits.Parts()
	row, err := s.o.Table.Read(ctx)
	if err != nil {
		return 0, false, err
	}
	was, err := readList(row.Value)
	if err != nil {
		return 0, false, err
	}
	l := was.at(row.Now)
	i := l.place(s.o.Name)
	if i < 0 {
		i = len(l.Members)
		l.Members = append(l.Members, member{Name: s.o.Name, Of: total})
	}
	before := l.Members[i]
	l.Of, l.Kind, l.Limits = s.o.Of, s.o.Kind, s.limits
	l.Members[i].Wants = wants
	if before.Parts > 0 && l.wait() && s.acted > 0 && time.Since(s.turn) >= s.turnLasts() {
		if _, short := l.fair(s.o.Name, total); short {
			i = l.toTheEnd(i)
		}
	}
	fair := 0
	if wants {
		fair, _ = l.fair(s.o.Name, total)
	}
	running := s.lower(min(fair, before.Parts))
	upper := row.Now.Add(time.Since(began)) // the database's clock has reached this at most
	parts := max(fair, min(before.Parts, s.limits.holding(running)))
	if parts > before.Parts {
		parts = max(before.Parts, min(parts, l.free(s.o.Name, total)))
	} else if parts < before.Parts {
		l.Freed = max(l.Freed, upper.UnixMicro())
	}
	more := s.tokensOf(parts-before.Parts, l, row.Now)
	l.Members[i].Parts, l.Members[i].Until = parts, upper.Add(Lasts).UnixMicro()
	listed := parts > 0 || wants
	if !listed {
		l.Members = slices.Delete(l.Members, i, i+1)
	}
	next = renewal
	if wants && parts != fair {
		next = soon
	}
	same := parts == before.Parts && wants == before.Wants && listed == (was.place(s.o.Name) >= 0)
	if due := s.renewed.Add(renewal); same && s.listed && began.Before(due) && i == was.place(s.o.Name) {
		return min(next, due.Sub(began)), true, nil
	}
	if same && !listed {
		s.listed = false
		return wait.Never, true, nil
	}
	s.listed = true // whatever the answer
	done, err = s.o.Table.Replace(ctx, row.Version, Row{Version: rand.Text(), Value: l.text()})
	if err != nil || !done {
		return 0, false, err
	}
	s.listed, s.renewed = listed, began
	s.renew(min(fair, parts), parts, more, began.Add(acts))
	if !listed {
		next = wait.Never
	}
	return next, true, nil
}

// tokensOf are the tokens that parts have got since they are free.
func (s *Share) tokensOf(parts int, l list, at time.Time) float64 {
	if parts <= 0 || s.limits.Rate == 0 {
		return 0
	}
	own := s.limits.Of(parts)
	most := float64(s.limits.Burst) * float64(parts) / float64(s.limits.Parts())
	if l.Freed == 0 { // no process has had the parts
		return most
	}
	return min(most, own.Rate*max(at.Sub(time.UnixMicro(l.Freed)).Seconds(), 0))
}
