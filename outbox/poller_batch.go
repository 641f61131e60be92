package outbox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/reason"
)

// batchQuery says which rows the poller reads next.
type batchQuery struct {
	limit int
	kind  batchKind
}

type batchKind uint8

const (
	plain     batchKind = iota // rows that are not leased
	takeovers                  // with leases: rows whose lease expired, too
	suspects                   // without leases: rows that a process which died may have had in hand
)

// next chooses the kind of the next batch. Takeovers and plain batches take
// turns. ok is false when there is nothing to read now.
func (p *poller) next(limit int, last batchKind) (q batchQuery, ok bool) {
	q = batchQuery{limit: limit}
	d := p.dispatcher
	died := p.died.Load() != nil
	switch {
	case last != plain:
	case died:
		q.kind = suspects
	case d.claims && !p.takeoverAt.After(time.Now()):
		q.kind = takeovers
	}
	if q.kind != plain {
		if q.limit = min(limit, p.takeoverRoom()); q.limit > 0 {
			return q, true
		}
		q = batchQuery{limit: limit}
	}
	return q, !died || !p.inOrder
}

// batch reads a batch and hands it over; taken is false when the dispatcher
// refused an event.
func (p *poller) batch(ctx context.Context, q batchQuery) (n int, taken bool, err error) {
	p.read = storedTime(p.clock.Now())
	p.beginTerm()
	p.dispatcher.track.beginRead(p.read)
	defer p.dispatcher.track.endRead()
	began := time.Now()
	b, lease, err := p.readBatch(ctx, q)
	if err != nil {
		return 0, false, err
	}
	p.note() // a backlog makes a long cycle
	p.observe(b)
	if err := p.bury(ctx, p.notInHand(b.Undecodable, lease), lease); err != nil && len(b.Undecodable) == q.limit {
		return 0, false, err // the next batch may begin at the same place, with the same rows
	}
	if q.kind == takeovers {
		p.takeoverAt = began.Add(p.sweepPause()) // unless there are some
		if b.Len() < q.limit {
			p.pass.SweptAt(p.read) // the batch came from all rows, rows without a lease included
		}
	}
	ds := make([]delivery, len(b.Envelopes)) // a single allocation for all
	for i := range b.Envelopes {
		ds[i].env, ds[i].lease, ds[i].term = &b.Envelopes[i], lease, p.term
		if !p.handOver(&ds[i], q.kind, b.Expired) {
			p.giveBack(b.Envelopes[i+1:], lease)
			p.pass.ReadAgain() // the refused events come first
			return b.Len(), false, nil
		}
	}
	if q.kind == suspects {
		return len(b.Envelopes) + len(b.Undecodable), true, nil
	}
	return b.Len(), true, p.takeExpired(ctx, b.Expired)
}

// beginTerm starts over under a new hold: another process may have delivered meanwhile, and the
// events that are still queued go back to their place in the order.
func (p *poller) beginTerm() {
	term := p.dispatcher.term()
	if p.term != 0 && p.term != term {
		p.pass.StartOver()
		p.dispatcher.giveBack()
	}
	p.term = term
}

// handOver gives an event to the dispatcher. With leases, a batch of takeovers has other events in
// it, too: an event that was taken over has an attempt, and was due before it was leased.
func (p *poller) handOver(dl *delivery, kind batchKind, expired []string) bool {
	env, lease := dl.env, dl.lease
	if lease == "" {
		return p.dispatcher.takeIn(dl) || p.passOver(env)
	}
	dl.takeover = kind != plain
	if p.dispatcher.claims {
		leased := p.clock.Now().Sub(env.AvailableAt) >= p.dispatcher.leases.lasts/2
		dl.takeover = dl.takeover && env.Attempts > 0 && leased
	} else {
		dl.counted = slices.Contains(expired, env.EventID)
	}
	if dl.takeover {
		p.takeoverAt = time.Time{}
		p.takenOver++
	}
	if p.dispatcher.takeIn(dl) {
		return true
	}
	p.giveBack([]Envelope{*env}, lease)
	return p.passOver(env)
}

// readBatch polls or claims. The lease is the name that claimed rows got.
func (p *poller) readBatch(ctx context.Context, q batchQuery) (b Batch, lease string, err error) {
	p.pass.Reading()
	var createdBefore time.Time
	if p.opts.SkipRecent > 0 {
		createdBefore = storedTime(p.read.Add(-p.opts.SkipRecent))
	}
	switch {
	case p.tenants != nil && q.kind == plain:
		return p.claimTenants(ctx, TenantQuery{Now: p.read, CreatedBefore: createdBefore, Except: p.except, Limit: q.limit})
	case p.dispatcher.claims:
		return p.claimDue(ctx, q, ClaimQuery{Now: p.read, CreatedBefore: createdBefore, Except: p.except})
	case q.kind == suspects:
		return p.claimSuspects(ctx, q.limit, createdBefore)
	}
	b, err = p.poll(ctx, PollQuery{Now: p.read, CreatedBefore: createdBefore, Limit: q.limit, Except: p.except})
	return b, "", err
}

// place is where the next batch begins: in a backlog, where the last batch ended, because rows
// before that place are in flight. The place starts over from time to time, because a row with an
// early time may have been committed late, or released.
func (p *poller) place() Cursor {
	if now := p.clock.Now(); !p.pass.GoesOn(now, max(p.opts.Interval, time.Second)) {
		p.pass.Begin(now, p.passStart(now))
	}
	return p.pass.Next()
}

// poll reads rows.
func (p *poller) poll(ctx context.Context, q PollQuery) (b Batch, err error) {
	q.After = p.place()
	if died := p.died.Load(); died != nil && q.After.AvailableAt.Before(*died) {
		q.After = Cursor{AvailableAt: *died} // the events that were due by then are suspects
	}
	q.LeaseDuration = p.leaseDuration()
	err = p.patienceFrom(q.After).Statement(ctx, func(ctx context.Context) (err error) {
		b, err = p.store.Poll(ctx, p.db, q)
		return err
	})
	if err != nil {
		return Batch{}, fmt.Errorf("outbox: polling due events: %w", err)
	}
	p.pass.Read(q.After, b.Next, b.Len() < q.Limit)
	return b, nil
}

func (p *poller) observe(b Batch) {
	p.metrics.BatchRead(b.Len())
	var lag time.Duration
	if len(b.Envelopes) > 0 {
		oldest := b.Envelopes[0].AvailableAt
		for i := range b.Envelopes {
			if t := b.Envelopes[i].AvailableAt; t.Before(oldest) {
				oldest = t
			}
		}
		lag = max(p.clock.Now().Sub(oldest), 0)
	}
	p.metrics.OldestLag(lag)
}

// notInHand leaves out rows whose events the dispatcher has in hand, as they were written: the
// delivery says how the event ends. Only a read without leases meets such rows.
func (p *poller) notInHand(rows []Undecodable, lease string) []Undecodable {
	if lease != "" {
		return rows
	}
	return slices.DeleteFunc(rows, func(row Undecodable) bool { return p.dispatcher.track.holds(row.EventID) })
}

// bury marks rows DEAD that cannot be delivered, so that the other rows can go on. bury logs the
// error.
func (p *poller) bury(ctx context.Context, rows []Undecodable, lease string) error {
	if len(rows) == 0 {
		return nil
	}
	marks := make([]Mark, len(rows))
	for i, row := range rows {
		marks[i] = Mark{EventID: row.EventID, Lease: lease, Error: errorText(row.Err.Error())}
	}
	left, err := p.markDead(ctx, marks)
	repeated := err != nil && ctx.Err() == nil
	if repeated { // the answer may be lost: no poll would find the rows again
		left, err = p.markDead(ctx, marks)
	}
	if err != nil {
		return fmt.Errorf("outbox: marking events dead that cannot be decoded: %w", err)
	}
	for i, row := range rows {
		if state, refused := left[row.EventID]; refused && (!repeated || !state.shows(OutcomeDead)) {
			if state.skipped(marks[i]) {
				p.unburied.Add(1, logKeyEventID, row.EventID, logKeyError, errSkipped.Error())
			}
			continue // else another node was faster, and reports the event
		}
		p.metrics.Died(EventKind{})
		text := errorText(row.Err.Error())
		p.undecodable.Add(reason.Of(text), logKeyEventID, row.EventID, logKeyError, text)
	}
	return nil
}

// markRefused marks the rows that the database refused, as [completer.markAll] does: without the
// texts, which the log has, and one by one.
func (p *poller) markRefused(ctx context.Context, marks []Mark, err error) (left map[string]RowState, last error) {
	if slices.ContainsFunc(marks, func(m Mark) bool { return m.Error != asciiText(m.Error) }) {
		for i := range marks {
			marks[i].Error = asciiText(marks[i].Error)
		}
		return p.markDead(ctx, marks)
	}
	if len(marks) == 1 {
		if marks[0].Error != "" {
			marks[0].Error = ""
			return p.markDead(ctx, marks)
		}
		p.unburied.Add(1, logKeyEventID, marks[0].EventID, logKeyError, err.Error())
		return nil, err
	}
	left = map[string]RowState{}
	for i := range marks {
		alone, err := p.markDead(ctx, marks[i:i+1])
		maps.Copy(left, alone)
		last = cmp.Or(err, last)
	}
	return left, last
}

func (p *poller) markDead(ctx context.Context, marks []Mark) (left map[string]RowState, err error) {
	err = p.statement(ctx, func(ctx context.Context) (err error) {
		left, err = p.store.Mark(ctx, p.db, OutcomeDead, marks)
		return err
	})
	if sqlerr.IsRefused(err) {
		return p.markRefused(ctx, marks, err)
	}
	if err != nil {
		p.unburied.Add(len(marks), logKeyError, err.Error())
	}
	return left, err
}

// lockedRows is how soon the poller looks again when rows that it read were locked or
// taken, mostly by another node.
const lockedRows = 50 * time.Millisecond

// tenantPolling is the state of a poller for [ClaimOptions].TenantsInTurn. The state belongs to
// whoever holds the poller's token.
type tenantPolling struct {
	reader TenantReader
	after  string // the tenant that the last claim ended with
	length int    // how many events of a tenant that claim took at most
	rounds int    // over all tenants since a tenant had an event that is due
	others bool   // may have events that are due: read on
}

// more reports whether the poller reads on; a nil t does not read tenants in turn.
func (t *tenantPolling) more() bool { return t != nil && t.others }

// requireTenantReader reports a store that cannot read tenants in turn.
func requireTenantReader(v *validator, inTurn bool, store Store) {
	if _, can := store.(TenantReader); inTurn && store != nil && !can {
		v.add("Store", fmt.Sprintf("is a %T, which has no ReadTenants, so it cannot read tenants in turn; take one from package sqlstore, or leave Claim.TenantsInTurn out", store))
	}
}

// claimTenants claims the first events tenant by tenant.
func (p *poller) claimTenants(ctx context.Context, q TenantQuery) (b Batch, lease string, err error) {
	read, more, err := p.readTenants(ctx, q)
	if err != nil {
		return Batch{}, "", fmt.Errorf("outbox: reading events of tenants: %w", err)
	}
	if b, lease, err = p.claimThese(ctx, q.Now, read.EventIDs); err != nil {
		return b, lease, err
	}
	p.tenants.after = read.Next
	ids := len(read.EventIDs)
	p.tenants.others = more && (ids == 0 || b.Len() > 0)
	if b.Len() < ids && !p.tenants.others {
		p.agenda.Note(p.clock.Now().Add(lockedRows))
	}
	return b, lease, nil
}

// readTenants reads as many events of each tenant as fill half of the batch together, so that no
// tenant is left out for the many events of another tenant: readTenants doubles the number of
// events per tenant, up to the whole batch. more is false when no other tenant has events that are
// due.
func (p *poller) readTenants(ctx context.Context, q TenantQuery) (read Tenants, more bool, err error) {
	t := p.tenants
	q.After = t.after
	found := 0
	for q.Length = min(max(1, t.length/2), q.Limit); ; q.Length = min(2*q.Length, q.Limit) {
		err = p.statement(ctx, func(ctx context.Context) (err error) {
			read, err = t.reader.ReadTenants(ctx, p.db, q)
			return err
		})
		n := len(read.EventIDs)
		if err != nil {
			return read, false, err
		}
		if t.length = q.Length; !read.End || 2*n >= q.Limit {
			break
		}
		if n == found || q.Length == q.Limit {
			return read, false, nil
		}
		found = n
	}
	if len(read.EventIDs) > 0 {
		t.rounds = 0
	} else if read.Wrapped {
		t.rounds++
	}
	if more = t.rounds < 2; !more { // a whole round found nothing
		t.rounds = 0
	}
	return read, more, nil
}
