package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// FindEvents lists events without their payloads and headers.
//
// NEW and RETRY events, if the filter asks for nothing else, are listed by the time when
// they become due, the earliest first. Only DONE or only DEAD events are listed by the time
// when they became so, the latest first. Everything else, and each search by IDPrefix, is listed
// by event id, the greatest first, which is the newest with generated ids; Since and Until are then
// about OccurredAt.
// Events whose time cannot be read, such as infinity, come after all others, by event id; Since
// leaves them out.
//
// A page is found by looking at SearchLimit rows at most, in that order. So a page may have
// fewer events than the limit, or no events, although there are more: go on with Next until
// Next is empty. Looked says how many rows it was. The primary key finds the events of an
// IDPrefix directly. With the index of sqlstore.WithSearchIndex, the events of an aggregate id
// are found directly, and listed by event id, whatever their status. Missing names the index if
// it is missing and the page ended before its time.
//
// Pages cover each row once if the row stays as it is. A row that changes its place meanwhile,
// such as the row of a retried event, may be missing or come twice.
func (o *Outbox) FindEvents(ctx context.Context, q EventQuery) (Page[EventRow], error) {
	if q.Limit < 0 || q.Limit > MaxFindLimit {
		return Page[EventRow]{}, &FieldError{Field: "EventQuery.Limit", Problem: fmt.Sprintf("is %d; it must be from 1 to %d, or zero for %d", q.Limit, MaxFindLimit, DefaultFindLimit)}
	}
	if err := q.validate(); err != nil {
		return Page[EventRow]{}, err
	}
	q.Limit, q.EventFilter = defaultTo(q.Limit, DefaultFindLimit), q.ofDeletion()
	page, err := o.store.FindEvents(ctx, o.db, q)
	for i := range page.Rows {
		page.Rows[i].original()
	}
	return page, err
}

// original fills in the listener that the row is for, and the event's id and headers for
// that listener, and the deletion of a deleted dead letter.
func (r *EventRow) original() {
	env, listener := originalOf(&r.Envelope)
	r.Listener, r.OriginalID, r.Headers = listener, env.EventID, env.Headers
	if id, deleted := strings.CutPrefix(r.Lease, DeletedBy); deleted && r.Status == StatusDone {
		r.DeletionID, r.DiedAt, r.Lease, r.LeasedAt = id, r.LeasedAt, "", time.Time{}
	}
}

// FindEvent reads an event of any status. FindEvent fails with [ErrNotFound] when there is
// no row of that id.
func (o *Outbox) FindEvent(ctx context.Context, eventID string) (EventRow, error) {
	v := validator{what: "FindEvent"}
	if v.text("eventID", eventID, MaxEventIDLength); v.err() != nil {
		return EventRow{}, v.err()
	}
	row, err := o.store.FindEvent(ctx, o.db, eventID)
	if err != nil {
		return EventRow{}, err
	}
	row.original()
	return row, nil
}

// Throughput reads how many events were delivered within the last minute, and how long the
// latest deliveries took.
func (o *Outbox) Throughput(ctx context.Context) (Throughput, error) {
	now, err := o.store.Now(ctx, o.db)
	if err != nil {
		return Throughput{}, err
	}
	return o.store.Throughput(ctx, o.db, now.Add(-ThroughputWindow))
}

// Stats reads the table's counts and the queues' depths.
func (o *Outbox) Stats(ctx context.Context) (Stats, error) {
	now := storedTime(o.clock.Now())
	paused, err := o.Paused(ctx)
	if err != nil {
		return Stats{}, err
	}
	ofKinds, _ := splitPauses(paused)
	kinds := make([]EventKind, len(ofKinds))
	for i := range ofKinds {
		kinds[i] = ofKinds[i].Kind
	}
	s, err := o.store.Stats(ctx, o.db, now, kinds)
	if err != nil {
		return Stats{}, err
	}
	st := Stats{Pending: s.Due + s.Delayed, Due: s.Due, Delayed: s.Delayed, Dead: s.Dead, DuePaused: s.DuePaused, Paused: paused}
	st.OldestDueAge = dueAge(now, s.OldestDue)
	if st.OldestDueAge > minMaxDueAge || !o.delivers() { // a reader of the log may keep the table empty
		if err := o.readLate(ctx, now, kinds, &st); err != nil {
			return Stats{}, err
		}
	}
	if st.ReplayProgressAge, err = o.replays().progressAge(ctx); err != nil {
		return Stats{}, err
	}
	st.WriteFailures = int(o.announcer.failures.Load())
	if o.delivers() {
		st.HotDepth, st.ColdDepth = o.dispatcher.depths()
		st.Unheard = o.dispatcher.unheard.list()
		st.Shares = o.dispatcher.ownShares()
		st.LastPoll, st.PollInterval = o.poller.lastPoll(), o.poller.opts.Interval
	}
	return st, nil
}

// dueAge is how long an event has been due; zero for no event.
func dueAge(now, since time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(now.Sub(since), 0)
}

// readLate reads which kinds are later than their own MaxDueAge, and sets OldestDueAge to that of the
// other kinds. A process that publishes the rows from the log leaves them as they are: then OldestDueAge is how
// long that process has not published the whole log.
func (o *Outbox) readLate(ctx context.Context, now time.Time, paused []EventKind, st *Stats) error {
	nodes, err := o.store.Nodes(ctx, o.db)
	if err != nil {
		return err
	}
	log, reads := logAge(now, nodes)
	if reads {
		st.OldestDueAge = log
		return nil
	}
	defer func() { st.OldestDueAge = max(st.OldestDueAge, log) }() // of a reader that died
	ages := o.allMaxDueAges(nodes)
	if len(ages) == 0 || st.OldestDueAge <= minMaxDueAge {
		return nil
	}
	q := DueKindsQuery{Now: now, Except: paused}
	for _, kind := range slices.SortedFunc(maps.Keys(ages), compareKinds) {
		q.Limits = append(q.Limits, DueLimit{kind, now.Add(-ages[kind] - time.Microsecond)})
	}
	due, err := o.store.DueKinds(ctx, o.db, q)
	if err != nil {
		return err
	}
	st.OldestDueAge = 0
	for _, k := range due {
		age := dueAge(now, k.Oldest)
		if limit, has := ages[k.Kind]; has {
			st.Late = append(st.Late, LateKind{k.Kind, limit, k.Events, age})
		} else {
			st.OldestDueAge = max(st.OldestDueAge, age)
		}
	}
	slices.SortFunc(st.Late, func(a, b LateKind) int { return compareKinds(a.Kind, b.Kind) })
	return nil
}

// logAge is how long the readers of the log that live have not published the whole log, and whether there are
// such readers. If no process delivers in any way, readers that died count. An age of less than two reports may
// be that of the reports.
func logAge(now time.Time, nodes []Node) (age time.Duration, live bool) {
	delivers := slices.ContainsFunc(nodes, func(n Node) bool { return n.Live && n.Delivers() })
	for i := range nodes {
		n := &nodes[i]
		if n.Log == nil || n.Live != delivers {
			continue
		}
		at := now
		if n.Live {
			at, live = n.SeenAt, true
		}
		if behind := at.Sub(later(n.LastPoll, n.Started)); behind > 2*announceEvery {
			age = max(age, behind)
		}
	}
	return age, live
}

// allMaxDueAges are the limits of lateness of the kinds that have one, as far as the processes of the
// table know them: those of this process, then the shortest of those that live nodes reported, or that
// dead nodes reported, if no node lives.
func (o *Outbox) allMaxDueAges(nodes []Node) map[EventKind]time.Duration {
	live := slices.ContainsFunc(nodes, func(n Node) bool { return n.Live && n.Delivers() })
	ages := map[EventKind]time.Duration{}
	for i := range nodes {
		for _, k := range nodes[i].MaxDueAges {
			if age, has := ages[k.Kind]; nodes[i].Live == live && (!has || k.MaxDueAge < age) {
				ages[k.Kind] = k.MaxDueAge
			}
		}
	}
	maps.Copy(ages, o.maxDueAges())
	return ages
}

// Nodes lists the processes that deliver from the table or write to it, by owner. Processes that
// only have leases, because an older version does not report, have only Owner, Leases and
// OldestLease.
func (o *Outbox) Nodes(ctx context.Context) ([]Node, error) {
	return o.store.Nodes(ctx, o.db)
}

// Shares lists the kinds of events with limits of all processes (see [Rules].Fleetwide), and the share
// of each process, by aggregate type and event type. A kind is listed after a process has asked for a
// share of its limits for the first time, and stays listed when no process has a share.
func (o *Outbox) Shares(ctx context.Context) ([]KindShares, error) {
	rows, err := o.store.AllShares(ctx, o.db)
	if err != nil {
		return nil, err
	}
	list := make([]KindShares, len(rows))
	for i, row := range rows {
		list[i] = kindShares(row)
	}
	slices.SortFunc(list, func(a, b KindShares) int { return compareKinds(a.Kind, b.Kind) })
	return list, nil
}

// Pause stops the deliveries of a kind of event, in all processes of the table, until
// [Outbox.Resume]. A delivery that has begun ends; an event that waits in a queue is given back
// without an attempt; further events stay in the table, with their place in the order. In [Ordered]
// a paused event holds up the events behind it, in [OrderedByKey] the events of the same key.
//
// When Pause returns, this process begins no more deliveries of the kind. Other processes follow at
// once when they have a [Notifier], else when their pollers read the table next: at the latest
// after [PollOptions].Interval, and within a second while they have a backlog.
//
// With Until, the pause ends by itself in all processes, without a write. The pause replaces the pause
// that the kind has, whether an operator or a listener asked for that pause: the last call decides.
// Pause returns a [FieldError] for a kind, a text or a time that cannot be stored, and for an Until
// that is over by the database's clock. The kind needs no listener here.
//
// With AggregateID, Pause stops the deliveries of the events of the kind that have this aggregate id.
// Until is required: each event of the key that comes up is deferred to this time, as with
// [PauseKeyFor]. In [Ordered] and [OrderedByKey] a deferred event would lose its place, so Pause refuses
// an AggregateID there, and processes in these modes do not follow the pause of a key.
func (o *Outbox) Pause(ctx context.Context, pause Pause) error {
	pause.Kind = pause.Kind.orGlobal()
	v := validator{what: "Pause"}
	pause.validate(&v)
	if pause.AggregateID != "" && o.dispatcher != nil && !o.dispatcher.deferring() {
		v.add("AggregateID", "is set, but the mode of this outbox keeps an order, so the events of a key cannot be deferred")
	}
	if err := v.err(); err != nil {
		return err
	}
	pause.Since, pause.Automatic = storedTime(o.clock.Now()), false
	return o.changePause(ctx, "pausing", pause.Kind, AuditEntry{Action: "pause", Target: pauseTarget(pause.Kind, pause.AggregateID) + untilTarget(pause.Until), Reason: pause.Reason}, func() error {
		if !pause.Until.IsZero() {
			pause.Until = storedTime(pause.Until)
			if err := o.checkUntil(ctx, pause.Until); err != nil {
				return err
			}
		}
		return o.store.Pause(ctx, o.db, pause)
	})
}

// checkUntil refuses a pause that is over.
func (o *Outbox) checkUntil(ctx context.Context, until time.Time) error {
	now, err := o.store.Now(ctx, o.db)
	if err == nil && !until.After(now) {
		err = &FieldError{Field: "Pause.Until", Problem: fmt.Sprintf("is over: the database's clock is %s ahead of it; give a later time, or none for a pause until Resume", now.Sub(until))}
	}
	return err
}

// Resume ends the pause of a kind of event, whether an operator or a listener asked for it. The events
// that stayed in the table are delivered, the oldest first. To resume a kind that is not paused
// changes nothing. A listener that returns [PauseFor] after Resume pauses the kind again.
func (o *Outbox) Resume(ctx context.Context, kind EventKind) error {
	kind = kind.orGlobal()
	v := validator{what: "kind"}
	kind.validate(&v)
	if err := v.err(); err != nil {
		return err
	}
	return o.changePause(ctx, "resuming", kind, AuditEntry{Action: "resume", Target: pauseTarget(kind, "")}, func() error {
		if o.dispatcher == nil {
			return o.store.Resume(ctx, o.db, kind, "")
		}
		return o.dispatcher.pauses.resume(ctx, kind)
	})
}

// ResumeKey ends the pause of a key: of the events of a kind that have this aggregate id. Resume
// ends no pauses of keys. The events of the key that were deferred to the end of the pause become due at
// once if the store has an index to find them: see sqlstore.WithKeyIndex and sqlstore.WithSearchIndex.
// Without such an index they stay deferred. To resume a key that is not paused changes nothing. If only
// making the events due fails, ResumeKey returns an error although the pause has ended. The processes that
// know the pause make the events due too, and try again until they succeed.
//
// Other processes learn at their next reading of the pauses, as with [Outbox.Pause], that the pause was
// lifted.
func (o *Outbox) ResumeKey(ctx context.Context, kind EventKind, aggregateID string) error {
	kind = kind.orGlobal()
	v := validator{what: "kind"}
	kind.validate(&v)
	if aggregateID == "" {
		v.errs = append(v.errs, &FieldError{Field: "aggregateID", Problem: "is empty; Resume ends the pause of a kind"})
	}
	v.text("aggregateID", aggregateID, MaxAggregateIDLength)
	if err := v.err(); err != nil {
		return err
	}
	var notDue error
	err := o.changePause(ctx, "resuming a key of", kind, AuditEntry{Action: "resume", Target: pauseTarget(kind, aggregateID)}, func() error {
		list, err := o.store.Paused(ctx, o.db)
		if err != nil {
			return err
		}
		if o.dispatcher == nil {
			err = o.store.Resume(ctx, o.db, kind, aggregateID)
		} else {
			err = o.dispatcher.pauses.resumeKey(ctx, kind, aggregateID)
		}
		key := keyOfKind{kind, aggregateID}
		i := slices.IndexFunc(list, func(p Pause) bool { return p.key() == key })
		if err != nil || i < 0 {
			return err
		}
		notDue = makeDue(ctx, o.store, o.db, key, list[i].Until, o.clock.Now())
		return nil
	})
	if notDue != nil {
		notDue = fmt.Errorf("outbox: resuming a key of %s: the pause has ended, but the events that it deferred could not be made due: %w", kind, notDue)
	}
	return errors.Join(err, notDue)
}

// Paused reads from the database the kinds of events that are paused, and the keys of kinds, whose
// pauses have an AggregateID. Paused lists them by aggregate type, event type and aggregate id. Pauses
// that have ended are left out. At most about 1,000 keys are listed: when more keys are paused at once, the
// pauses of the others hold only in the process that paused them.
func (o *Outbox) Paused(ctx context.Context) ([]Pause, error) {
	list, err := o.store.Paused(ctx, o.db)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b Pause) int {
		return cmp.Or(strings.Compare(a.Kind.String(), b.Kind.String()), strings.Compare(a.AggregateID, b.AggregateID))
	})
	return list, nil
}

// changePause makes a change of a pause, and records the change if it is stored, also if this process
// cannot read the pauses afterwards.
func (o *Outbox) changePause(ctx context.Context, doing string, kind EventKind, e AuditEntry, change func() error) error {
	if err := change(); err != nil {
		return err // names the kind
	}
	var err error
	if o.dispatcher != nil {
		err = o.dispatcher.pauses.read(ctx)
	}
	if err != nil {
		err = fmt.Errorf("outbox: %s %s: %w", doing, kind, err)
	} else if o.poller != nil {
		o.poller.Wake()
	}
	o.notifications.Notify()
	return o.auditor().record(ctx, e, err)
}

// StartReplay delivers events again that were delivered before, to a single listener, whatever the other
// listeners did with them: so a new listener gets the events from before its time, and a listener that was
// mended gets the events that it did wrong. The events come from the DONE rows of the table, so a replay
// reaches as far back as rows are kept: an event that is deleted when it is done, or that a purge has
// deleted, is not replayed.
//
// StartReplay checks the replay and stores it; the processes that deliver do the rest, and go on with it
// when one of them ends. They look for new replays every five seconds; the process of the call looks at
// once if it delivers. A second apart, a step of the replay adds a row for the listener for each of the
// next Rate events, in the order of their delivery. The next step waits until each of these rows was tried,
// so a replay waits for a listener that is slow or paused (see [ReplayStatus].Waiting), and does not fill
// the table. The rows of a step become due in the order in which their events occurred.
//
// Only a process that has the listener, for all event types of the replay, makes steps: a replay for a
// listener that no process has adds nothing. A process whose [ListenerRegistry] is no [Registry] does not
// know, and makes steps.
//
// The listener gets an event with its id, its times and its headers, as in the first delivery. Its
// failures are retried, and die, as those of a listener of several. Rules count, too: an event that is
// older than [Rules].Expires dies. The outcome of the first delivery does not change, also not a dead
// letter of this listener.
//
// StartReplay returns a [FieldError] for a field that is missing or cannot be stored, and [ErrReplayExists]
// if the table has a replay of this name. An event whose delivery a transaction of more than a minute stored
// may be left out if it was delivered shortly before Until.
func (o *Outbox) StartReplay(ctx context.Context, replay Replay) error {
	if err := o.replays().start(ctx, &replay); err != nil {
		var field *FieldError
		if !errors.As(err, &field) {
			err = fmt.Errorf("outbox: starting replay %.64q: %w", replay.Name, err)
		}
		return err
	}
	o.askReplayer()
	return o.auditor().record(ctx, AuditEntry{Action: "start-replay", Target: replay.target(), Reason: replay.Reason}, nil)
}

// StopReplay stops a replay: no further events are added for the listener. The events that were added are
// delivered. Stopping a replay that does not run changes nothing. StopReplay fails with [ErrNotFound] if the
// table has no replay of this name.
func (o *Outbox) StopReplay(ctx context.Context, name string) error {
	return o.changeReplay(ctx, "stop", "stopping", name, ReplayRunning, ReplayStopped)
}

// ContinueReplay continues a replay that was stopped, where the replay had come to. Continuing a replay that
// runs changes nothing. ContinueReplay fails with [ErrNotFound] if the table has no replay of this name, and
// returns a [FieldError] for a replay that is done.
func (o *Outbox) ContinueReplay(ctx context.Context, name string) error {
	return o.changeReplay(ctx, "continue", "continuing", name, ReplayStopped, ReplayRunning)
}

func (o *Outbox) changeReplay(ctx context.Context, action, doing, name string, from, to ReplayState) error {
	row, changed, err := o.replays().change(ctx, name, from, to)
	if err != nil {
		return fmt.Errorf("outbox: %s replay %.64q: %w", doing, name, err)
	}
	if row.State == ReplayDone && to == ReplayRunning {
		return &FieldError{Field: "Replay.Name", Problem: fmt.Sprintf("is %.64q, and this replay is done; start a replay with another name", name)}
	}
	o.askReplayer()
	if !changed {
		return nil
	}
	return o.auditor().record(ctx, AuditEntry{Action: action + "-replay", Target: "replay=" + url.QueryEscape(name), Count: int(row.Added)}, nil)
}

// Replays lists the replays of delivered events, the replay that started last first. There are at most
// [MaxReplays].
func (o *Outbox) Replays(ctx context.Context) ([]ReplayStatus, error) {
	rows, err := o.store.Replays(ctx, o.db)
	if err != nil {
		return nil, err
	}
	list := make([]ReplayStatus, len(rows))
	for i := range rows {
		row, problem := readReplay(rows[i].Value)
		if problem != nil {
			list[i].Problem = problem.Error()
			continue
		}
		list[i] = row.status()
		last, err := o.store.Added(ctx, o.db, row.Last)
		if err != nil {
			return nil, err
		}
		list[i].Failed, list[i].LastError = last.Failed, last.LastError
		if row.State == ReplayRunning {
			list[i].Waiting = last.Untried
		}
	}
	slices.SortFunc(list, func(a, b ReplayStatus) int {
		return cmp.Or(b.Started.Compare(a.Started), strings.Compare(a.Name, b.Name))
	})
	return list, nil
}

func (o *Outbox) replays() replays { return replays{o.db, o.store} }

// askReplayer makes the replayer of this process look for replays now.
func (o *Outbox) askReplayer() {
	if o.replayer != nil {
		o.replayer.ask()
	}
}

// Audit lists the entries of the audit log, the newest first.
func (o *Outbox) Audit(ctx context.Context, q AuditQuery) (Page[AuditEntry], error) {
	if q.Limit < 0 || q.Limit > MaxAuditLimit {
		return Page[AuditEntry]{}, &FieldError{Field: "AuditQuery.Limit", Problem: fmt.Sprintf("is %d; it must be from 1 to %d, or zero for %d", q.Limit, MaxAuditLimit, DefaultAuditLimit)}
	}
	v := validator{what: "AuditQuery"}
	if v.text("After", q.After, MaxEventIDLength); v.err() != nil {
		return Page[AuditEntry]{}, v.err()
	}
	limit := defaultTo(q.Limit, DefaultAuditLimit)
	rows, err := o.store.Audit(ctx, o.db, q.After, limit+1)
	page := Page[AuditEntry]{Rows: rows}
	if len(rows) > limit {
		page.Rows = rows[:limit]
		page.Next = rows[limit-1].ID
	}
	return page, err
}

// RecordChange writes an entry of the audit log for a change that was made by other means than the calls
// that record their changes, such as by [Store].Purge. Give Action, Target, Count, Reason and Incomplete;
// the operator comes from the context ([WithOperator]). Without an operator RecordChange does nothing. If
// the entry cannot be stored, the error is [ErrNotRecorded].
func (o *Outbox) RecordChange(ctx context.Context, e AuditEntry) error {
	return o.auditor().record(ctx, e, nil)
}

func (o *Outbox) auditor() auditor { return auditor{o.db, o.store, o.clock} }

// Retention is how long this process keeps the rows of events that ended, unless a kind has a retention of
// its own ([Rules]); so long can a deletion of dead letters be undone. purges is false if the process purges
// no rows by their end: without [Config].Purge, and with [PurgeOptions].Undelivered.
func (o *Outbox) Retention() (retention time.Duration, purges bool) {
	if o.purger == nil || o.purger.byAge {
		return 0, false
	}
	return o.purger.opts.Retention, true
}

// Purge runs a purge now: it deletes all rows that are older than [Config].Purge says, and
// returns how many rows it deleted, also with an error. Without that configuration, Purge
// returns a [FieldError].
func (o *Outbox) Purge(ctx context.Context) (int, error) {
	if o.purger == nil {
		return 0, &FieldError{Field: "Config.Purge", Problem: "is nil, so nothing says which rows are old; set PurgeOptions"}
	}
	n, err := o.purger.runOnce(ctx)
	if err == nil || n > 0 {
		err = o.auditor().record(ctx, AuditEntry{Action: "purge", Target: "old rows", Count: n}, err)
	}
	return n, err
}
