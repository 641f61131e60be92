package model_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/proof/model"
)

// leaseTime is short, so that leases expire.
const leaseTime = 2 * time.Second

// recorder takes down what happens to each row. One statement runs at a time, so that the
// order of the records is that of the database.
type recorder struct {
	mu   sync.Mutex
	rows map[string]*rowTrace
	late sync.WaitGroup
	chances
}

// rowTrace is the trace of one row.
type rowTrace struct {
	writer  int
	records []model.Record
	lease   string // as the records have it
	since   time.Time
	late    bool // a statement that its client gave up is still to come
}

func newRecorder() *recorder { return &recorder{rows: map[string]*rowTrace{}} }

// add takes down an event; mu is held. Traces call the writer of a row node 0.
func (r *recorder) add(id string, node int, lease string, e model.Event) {
	row := r.rows[id]
	if e.Node = 0; node != row.writer {
		e.Node = 1
	}
	row.records = append(row.records, model.Record{Event: e, LockedBy: lease})
}

// began notes that the row is under a lease from that time on.
func (row *rowTrace) began(lease string, since time.Time) { row.lease, row.since = lease, since }

// note is add for events of listeners.
func (r *recorder) note(id string, node int, e model.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(id, node, "", e)
}

// recorded is the store of one node. It records its statements, and loses answers.
type recorded struct {
	*sqlstore.Store
	r    *recorder
	node int
}

var errLost = errors.New("the answer was lost")

// chances are true once in n calls: by count, so that no run goes without.
type chances struct{ lostClaims, givenUp, lostMarks, failures, doubts atomic.Int64 }

func once(calls *atomic.Int64, n int64) bool { return calls.Add(1)%n == n/2 }

// Insert is called while mu is held.
func (s *recorded) Insert(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) error {
	since := time.Now()
	err := s.Store.Insert(ctx, tx, envs, lease, due)
	for i := range envs {
		row := &rowTrace{writer: s.node}
		s.r.rows[envs[i].EventID] = row
		row.began(lease, since)
		s.r.add(envs[i].EventID, s.node, lease, model.Event{Kind: model.Wrote})
	}
	return err
}

// InsertOnce inserts events whose ids are surely new.
func (s *recorded) InsertOnce(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) ([]string, error) {
	ids := make([]string, len(envs))
	for i := range envs {
		ids[i] = envs[i].EventID
	}
	return ids, s.Insert(ctx, tx, envs, lease, due)
}

func (s *recorded) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	since := time.Now()
	b, err := s.Store.Claim(ctx, db, q)
	if err != nil {
		return b, err
	}
	lost := b.Len() > 0 && once(&s.r.lostClaims, 8)
	for i := range b.Envelopes {
		env := &b.Envelopes[i]
		row := s.r.rows[env.EventID]
		if row.lease != "" && time.Since(row.since) >= leaseTime {
			s.r.add(env.EventID, s.node, row.lease, model.Event{Kind: model.Expired})
		}
		row.began(q.Lease, since)
		s.r.add(env.EventID, s.node, q.Lease, model.Event{Kind: model.Claimed, Attempts: uint8(env.Attempts)})
		if lost {
			s.r.add(env.EventID, s.node, q.Lease, model.Event{Kind: model.AnswerLost})
		}
	}
	if lost {
		return outbox.Batch{}, errLost
	}
	return b, nil
}

// Mark marks row by row, so that the trace knows which rows changed. Some marks fail before
// they are carried out, and are carried out a little later all the same.
func (s *recorded) Mark(ctx context.Context, db outbox.DB, o outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if len(marks) == 1 && !s.r.rows[marks[0].EventID].late && once(&s.r.givenUp, 5) {
		s.later(db, o, marks[0])
		return nil, errLost
	}
	left, lost := map[string]outbox.RowState{}, once(&s.r.lostMarks, 6)
	for _, m := range marks {
		state, err := s.mark(ctx, db, o, m, false)
		if err != nil {
			return nil, err
		}
		if state != nil {
			left[m.EventID] = *state
		}
		if lost && o != outbox.OutcomeReleased { // a release is one step of the model
			s.r.add(m.EventID, s.node, m.Lease, model.Event{Kind: model.AnswerLost})
		}
	}
	if lost {
		return nil, errLost
	}
	return left, nil
}

// later gives a statement up and carries it out later; mu is held.
func (s *recorded) later(db outbox.DB, o outbox.Outcome, m outbox.Mark) {
	row := s.r.rows[m.EventID]
	if o != outbox.OutcomeReleased || row.lease == m.Lease { // else it will change nothing
		s.r.add(m.EventID, s.node, m.Lease, model.Event{Kind: model.GaveUp})
	}
	row.late = true
	s.r.late.Go(func() {
		<-time.After(rand.N(leaseTime))
		s.r.mu.Lock()
		defer s.r.mu.Unlock()
		row.late = false
		_, _ = s.mark(context.Background(), db, o, m, true)
	})
}

var outcomes = map[outbox.Outcome]model.Outcome{
	outbox.OutcomeDone: model.OutcomeDone, outbox.OutcomeRetry: model.OutcomeRetry,
	outbox.OutcomeDead: model.OutcomeDead, outbox.OutcomeDeferred: model.OutcomeDeferred,
}

// mark marks one row; mu is held. It returns how the row stands if it did not change.
func (s *recorded) mark(ctx context.Context, db outbox.DB, o outbox.Outcome, m outbox.Mark, late bool) (*outbox.RowState, error) {
	left, err := s.Store.Mark(ctx, db, o, []outbox.Mark{m})
	if err != nil {
		return nil, err
	}
	state, refused := left[m.EventID]
	e := model.Event{Kind: model.Marked, Outcome: outcomes[o], Changed: !refused, Late: late}
	if o == outbox.OutcomeReleased {
		e.Kind = model.Released
	}
	// What changes nothing leaves no trace if it comes late, or is a release: of a claim that
	// failed, nobody knows whether there is something to give back.
	if !refused || !late && e.Kind != model.Released {
		s.r.add(m.EventID, s.node, m.Lease, e)
	}
	if refused {
		return &state, nil
	}
	s.r.rows[m.EventID].lease = ""
	return nil, nil
}

// Renew leaves out the events that stall: their node is as good as stopped.
func (s *recorded) Renew(ctx context.Context, db outbox.DB, leases []outbox.Lease) error {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, l := range leases {
		if strings.HasPrefix(l.EventID, "stall") {
			continue
		}
		since, row := time.Now(), s.r.rows[l.EventID]
		if err := s.Store.Renew(ctx, db, []outbox.Lease{l}); err != nil {
			return err
		}
		if row.lease == l.Name {
			row.since = since
			s.r.add(l.EventID, s.node, l.Name, model.Event{Kind: model.Renewed})
		}
	}
	return nil
}

func (s *recorded) ReplayDead(ctx context.Context, db outbox.DB, ids []string, now time.Time, to outbox.Status) (int, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	n, err := s.Store.ReplayDead(ctx, db, ids, now, to)
	if n == len(ids) {
		for _, id := range ids {
			s.r.add(id, s.r.rows[id].writer, "", model.Event{Kind: model.Replayed})
		}
	}
	return n, err
}
