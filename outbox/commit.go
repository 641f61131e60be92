package outbox

import "time"

// pending are the deliveries of a write, from before the rows are inserted until the
// transaction has ended.
type pending struct {
	envs  []Envelope
	due   time.Time // events that are available later are left to the poller
	lease string    // of the rows that are due; empty: no lease
	ds    []delivery
	began time.Time // before the lease did
	split bool      // events are left to the poller because of others in the write
	once  bool      // an id was given, or a unique key: [Store].InsertOnce inserts the rows
	// replaced is when the first of the events is due whose content a write has replaced; zero: no event.
	replaced time.Time
	writes   *TxWrites // of the transaction; nil: not enlisted
	// unleased: the rows get no leases, so postponed events are left to the poller.
	unleased bool
}

// reserve keeps the pollers from taking the events of an open transaction: on this
// node through the tracker, on other nodes through a lease. Events for which the hot
// queue or their lane has no room, and events that are paused or have no listener here, are left
// to the pollers from the start. A lease covers either the whole write or nothing.
func (d *dispatcher) reserve(p *pending) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	p.unleased = !d.claims
	room := space{d: d, hot: d.queues.Hot.Room()}
	if d.state != running || d.byKey || !d.holds() {
		return
	}
	var lease string
	if d.claims {
		lease = d.leases.names.Next()
	}
	p.began = time.Now()
	term := d.term()
	ds := make([]delivery, 0, min(len(p.envs), max(room.hot, 1)))
	for i := range p.envs {
		env := &p.envs[i]
		switch {
		case !p.isDue(env):
		case room.take(env):
			ds = append(ds, delivery{env: env, lease: lease, term: term})
		case d.claims:
			p.split = room.hot >= 0
			return
		}
	}
	if len(ds) == 0 {
		return
	}
	p.ds, p.lease = ds, lease
	d.track.reserve(p.ds)
}

// keep replaces the events of a write by the events whose rows were inserted.
func (d *dispatcher) keep(p *pending, written []Envelope) {
	d.track.unreserve(p.ds)
	reserved := make(map[string]*delivery, len(p.ds))
	for i := range p.ds {
		reserved[p.ds[i].id()] = &p.ds[i]
	}
	p.envs, p.ds = written, make([]delivery, 0, len(p.ds))
	for i := range written {
		if was := reserved[written[i].EventID]; was != nil {
			p.ds = append(p.ds, delivery{env: &written[i], lease: was.lease, term: was.term})
		}
	}
	d.track.reserve(p.ds)
}

// isDue reports whether an event may be delivered without the poller as soon as it is committed.
func (p *pending) isDue(env *Envelope) bool {
	return !env.AvailableAt.After(p.due) && (!p.unleased || !env.isPostponed())
}

// unreserve lets go of the events of a transaction that was rolled back.
func (d *dispatcher) unreserve(p *pending) { d.track.unreserve(p.ds) }

// doubt lets go of the events of a transaction that may or may not have been
// committed, so that any node may deliver them.
func (d *dispatcher) doubt(p *pending) {
	d.track.unreserve(p.ds)
	if p.lease != "" {
		d.leases.releaser.Doubt(p.leases(p.ds), p.began)
	}
}

// committed takes the events of a committed transaction into the hot queue,
// without waiting.
func (d *dispatcher) committed(p *pending) {
	if d.byKey {
		d.committedByKey(p)
		return
	}
	// After half of the lease's time, the lease may end before the delivery does.
	fresh := p.lease == "" || time.Since(p.began) < d.leases.lasts/2
	if d.waits() { // the process that holds the table delivers the events
		d.notifications.Notify()
	}
	taken := p.writes.end()
	left := p.ds
	var dropped []delivery
	late, warn := 0, 0 // not reserved; for lack of room in the hot queue
	elsewhere := false // an event has no listener here
	for i := range p.envs {
		env := &p.envs[i]
		reserved := len(left) > 0 && left[0].env == env
		switch kind := kindOf(env); {
		case taken[env.EventID] > 0: // the row is gone, or the poller reads it
			if reserved {
				dropped = append(dropped, left[0])
			}
		case !p.isDue(env):
			d.metrics.HotSkippedDelayed(kind)
			d.dueAt(env.AvailableAt)
		case reserved && fresh && d.promote(&left[0]):
			d.metrics.HotEnqueued(kind)
		case reserved:
			dropped = append(dropped, left[0])
			if d.lanes().of(env) == nil && !d.leaves(env) {
				d.metrics.HotDropped(kind)
				warn++
			}
		case d.waits(): // the process that holds the table delivers the event
		case d.unheard.has(env):
			elsewhere = true
		case d.keeps(env):
			elsewhere = elsewhere || d.isElsewhere(env)
		case p.split:
			late++
		default:
			d.metrics.HotDropped(kind)
			late++
			warn++
		}
		if reserved {
			left = left[1:]
		}
	}
	if elsewhere {
		d.wakeOthers()
	}
	if len(dropped)+late == 0 {
		return
	}
	d.track.unreserve(p.ds)
	d.leases.releaser.Release(p.leases(dropped))
	d.tellDepths()
	if warn > 0 {
		d.drops.Add(warn)
	}
	d.wakePoller()
	if late > 0 { // the releaser notifies of the other events
		d.wakeOthers()
	}
}

// committedByKey makes the poller read the events of a committed transaction.
func (d *dispatcher) committedByKey(p *pending) {
	due, elsewhere := false, !d.isRunning()
	for i := range p.envs {
		env := &p.envs[i]
		if !p.isDue(env) {
			d.dueAt(env.AvailableAt)
			continue
		}
		due, elsewhere = true, elsewhere || d.unheard.has(env)
	}
	if !due {
		return
	}
	d.poller.wroteRuns()
	if elsewhere {
		d.notifications.Notify()
	}
}

func (d *dispatcher) isRunning() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.state == running
}

// waits reports whether this process is a standby, or delivers nothing.
func (d *dispatcher) waits() bool { return d.deaf.Load() || d.hold != nil && d.hold.Standby() }

// leases are the leases of the rows of some of the deliveries.
func (p *pending) leases(ds []delivery) []Lease {
	if p.lease == "" {
		return nil
	}
	leases := make([]Lease, len(ds))
	for i := range ds {
		leases[i] = Lease{ds[i].id(), p.lease}
	}
	return leases
}

// promote moves a reserved event into the hot queue.
func (d *dispatcher) promote(dl *delivery) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.state != running || !d.track.promote(dl) {
		return false
	}
	dl.hot = true
	if d.queueUp(dl) {
		return true
	}
	d.track.release(dl)
	return false
}

// wakePoller makes the poller read now.
func (d *dispatcher) wakePoller() { d.poller.Wake() }

// wakeOthers makes the pollers of other processes read now, for events that this
// process may not deliver.
func (d *dispatcher) wakeOthers() {
	if d.claims || !d.holds() {
		d.notifications.Notify()
	}
}

// startOver makes the poller read now, from the start of the table.
func (d *dispatcher) startOver() {
	d.poller.startOver()
}

// freed is called when rows became free that this process had: freed makes every poller
// read now, the poller of this process from the start of the table.
func (d *dispatcher) freed() {
	d.startOver()
	d.wakeOthers()
}

// dueAt gives the poller a time at which an event becomes due.
func (d *dispatcher) dueAt(t time.Time) { d.poller.DueAt(t) }

// tellDepths reports how full the queues are. tellDepths is called with each batch of
// outcomes, when an event is dropped, and in each cycle of the poller, so also
// while workers hang.
func (d *dispatcher) tellDepths() { d.metrics.QueueDepths(d.depths()) }

// reader is the poller, as the dispatcher knows it.
type reader interface {
	Wake()
	DueAt(t time.Time)
	startOver()
	wroteRuns()
}
