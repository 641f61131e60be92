package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/loop"
)

// How a replayer works.
const (
	replayIdle  = 5 * time.Second        // between two looks for replays, while none runs
	replayPause = 200 * time.Millisecond // between two steps of the replays that run, and doubled while none moves
	replayPace  = time.Second            // a step adds the events of this time
	replayLooks = 10                     // how many times in a row a replay looks for events, if it finds none
)

// replayer moves the replays of delivered events on. Each process that may deliver has a replayer. A step
// of a replay replaces the row of the replay, if the row still has the version that was read, and adds
// rows for the listener in the same transaction. So of several processes one makes the step, and a process
// that dies loses no event and repeats none.
type replayer struct {
	db    DB
	store Store
	log   *slog.Logger
	// delivers reports whether this process delivers now. A standby makes no steps: its poller would not
	// read the rows.
	delivers func() bool
	// hears reports whether this process has the listener. The others make no steps: events for a listener
	// that no process has would hold back their keys in [OrderedByKey].
	hears func(name string, aggregate AggregateType, events []EventType) bool
	// added is called after a step that added rows: they are due.
	added   func()
	failing logburst.Burst
	asked   chan struct{} // look now
	loop    *loop.Loop
	// settled is how old a delivery must be before the replayer looks at it.
	settled time.Duration
}

// Start starts the replayer. ctx bounds only the start.
func (r *replayer) Start(ctx context.Context) error { return r.loop.Start(ctx) }

// Close stops the replayer and waits until the replayer has ended, or until ctx ends.
func (r *replayer) Close(ctx context.Context) error {
	if err := r.loop.Close(ctx); err != nil {
		return fmt.Errorf("outbox: closing the replayer: %w", err)
	}
	return nil
}

// ask makes the replayer look now.
func (r *replayer) ask() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

func (r *replayer) run(ctx context.Context) {
	defer r.failing.Flush()
	idle := replayIdle - rand.N(replayIdle/10) // not all nodes of a deploy together
	timer := time.NewTimer(idle)
	defer timer.Stop()
	pause := replayPause
	for runs := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.asked:
			pause = replayPause
		}
		did, err := r.steps(ctx)
		switch {
		case err == nil:
			runs = did.running
			r.failing.End()
		case ctx.Err() != nil:
			return
		case runs || did.running: // otherwise nothing waits for the replayer, and the poller reports an outage
			r.failing.Add(1, logKeyError, err.Error())
		default:
			r.log.Debug("outbox: looking for replays of delivered events failed; the next look tries again", logKeyError, err.Error())
		}
		switch {
		case !runs && !did.running:
			timer.Reset(idle)
		case err == nil && did.moved:
			pause = replayPause
			timer.Reset(pause)
		case err == nil && did.wait > 0:
			timer.Reset(did.wait)
		default: // the listener is slow, or paused, or nowhere; or a step failed
			timer.Reset(pause)
			pause = min(2*pause, idle)
		}
	}
}

// made says what the steps of all replays did.
type made struct {
	running, moved bool
	// wait is how long it takes until a replay may add events again; zero: no replay waits for that.
	wait time.Duration
}

// steps makes a step of each replay that runs.
func (r *replayer) steps(ctx context.Context) (did made, err error) {
	if !r.delivers() {
		return did, nil
	}
	rows, err := r.list(ctx)
	if err != nil {
		return did, err
	}
	var errs []error
	for i := range rows {
		row, problem := readReplay(rows[i].Value)
		if problem != nil || row.State != ReplayRunning {
			continue
		}
		did.running = true
		if !r.hears(row.Listener, row.AggregateType, row.EventTypes) {
			continue
		}
		if wait := rows[i].NextAt.Sub(rows[i].Now); wait > 0 {
			if did.wait == 0 || wait < did.wait {
				did.wait = min(wait, replayPace)
			}
			continue
		}
		moved, err := r.stepsOf(ctx, &rows[i], row)
		did.moved = did.moved || moved
		if err != nil {
			errs = append(errs, fmt.Errorf("replay %.64q: %w", row.Name, err))
		}
	}
	return did, errors.Join(errs...)
}

func (r *replayer) list(ctx context.Context) ([]ReplayRow, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return r.store.Replays(ctx, r.db)
}

// stepsOf makes steps of a replay, until a step adds events or finds no further rows, and reports whether
// the replay moved.
func (r *replayer) stepsOf(ctx context.Context, was *ReplayRow, row replayRow) (some bool, err error) {
	for range replayLooks {
		moved, added, err := r.step(ctx, was, &row)
		some = some || moved
		if err != nil || !moved || added > 0 || row.State != ReplayRunning {
			return some, err
		}
	}
	return some, nil
}

// step makes a step, and reports whether the replay moved, and how many events it added. was and row are
// then as the step left them.
//
// While a row of the last step was not tried, the step does nothing: so the table has never more rows of a
// replay that wait for their first attempt than a step adds.
func (r *replayer) step(ctx context.Context, was *ReplayRow, row *replayRow) (moved bool, added int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	last, err := r.store.Added(ctx, r.db, row.Last)
	if err != nil || last.Untried > 0 {
		return false, 0, err
	}
	until := storedTime(was.Now.Add(-r.settled))
	isLast := !row.Until.After(until)
	if isLast {
		until = row.Until
	}
	found, err := r.store.Delivered(ctx, r.db, DeliveredQuery{
		AggregateType: row.AggregateType, EventTypes: row.EventTypes, AggregateID: row.AggregateID, TenantID: row.TenantID,
		AfterDoneAt: row.DoneAt, AfterEventID: row.DoneID, Until: until, Look: SearchLimit, Limit: row.Rate,
	})
	if err != nil {
		return false, 0, err
	}
	next := *row
	next.Moved, next.Progress = was.Now, row.progress()
	if last.Failed == 0 || last.Failed < len(row.Last) {
		next.Progress = was.Now
	}
	next.DoneAt, next.DoneID = found.DoneAt, found.EventID
	next.Looked, next.Unreadable = row.Looked+int64(found.Looked), row.Unreadable+int64(found.Unreadable)
	rows := next.rows(found.Events, was.Now)
	next.Added += int64(len(rows))
	if len(rows) > 0 { // otherwise the last events remain those that tell whether the listener fails
		next.Last = nil
	}
	for i := range rows {
		next.Last = append(next.Last, rows[i].EventID)
	}
	switch {
	case found.End && isLast && len(rows) == 0:
		next.State = ReplayDone
	case found.Looked == 0:
		return false, 0, nil
	}
	stored, err := next.stored(was.Now)
	if err != nil {
		return false, 0, err
	}
	set, err := r.store.SetReplay(ctx, r.db, was.Version, stored, rows)
	if err != nil || !set {
		return false, 0, err
	}
	stored.Now, stored.NextAt = was.Now, was.NextAt
	*was, *row = stored, next
	if len(rows) > 0 {
		r.added()
	}
	return true, len(rows), nil
}

// replays reads the replays of a table, by name.
type replays struct {
	db    DB
	store Store
}

// find reads the replay of a name; [ErrNotFound] if there is none.
func (r replays) find(ctx context.Context, name string) (ReplayRow, replayRow, error) {
	rows, err := r.store.Replays(ctx, r.db)
	for i := range rows {
		if row, problem := readReplay(rows[i].Value); problem == nil && row.Name == name {
			return rows[i], row, err
		}
	}
	if err == nil {
		err = ErrNotFound
	}
	return ReplayRow{}, replayRow{}, err
}

// progressAge is how long ago the running replay made progress that has made no progress for the longest;
// zero: no replay runs.
func (r replays) progressAge(ctx context.Context) (age time.Duration, err error) {
	rows, err := r.store.Replays(ctx, r.db)
	for i := range rows {
		if row, problem := readReplay(rows[i].Value); problem == nil && row.State == ReplayRunning {
			age = max(age, rows[i].Now.Sub(row.progress()))
		}
	}
	return age, err
}

// change changes the state of a replay, from a state to another, and reports whether it did. A replay
// moves meanwhile, so change tries several times.
func (r replays) change(ctx context.Context, name string, from, to ReplayState) (row replayRow, changed bool, err error) {
	for range 20 {
		was, row, err := r.find(ctx, name)
		if err != nil || row.State != from {
			return row, false, err
		}
		row.State, row.Moved, row.Progress = to, was.Now, was.Now
		next, err := row.stored(was.Now)
		if err != nil {
			return row, false, err
		}
		if set, err := r.store.SetReplay(ctx, r.db, was.Version, next, nil); err != nil || set {
			return row, set, err
		}
	}
	return row, false, errors.New("the replay moved each time that its state was to be changed; try again")
}

// start adds the row of a replay, and makes room for the row.
func (r replays) start(ctx context.Context, replay *Replay) error {
	now, err := r.store.Now(ctx, r.db)
	if err != nil {
		return err
	}
	if err := replay.prepare(now); err != nil {
		return err
	}
	rows, err := r.store.Replays(ctx, r.db)
	if err != nil {
		return err
	}
	if err := r.makeRoom(ctx, rows, replay.Name); err != nil {
		return err
	}
	next, err := newReplayRow(replay, now).stored(now)
	if err != nil {
		return err
	}
	set, err := r.store.SetReplay(ctx, r.db, "", next, nil)
	if err == nil && !set {
		err = ErrReplayExists
	}
	return err
}

// makeRoom deletes the rows of replays that ended first, so that a new replay has room.
func (r replays) makeRoom(ctx context.Context, stored []ReplayRow, name string) error {
	type ended struct {
		replayRow
		as ReplayRow
	}
	var all int
	var over []ended
	for i := range stored {
		row, problem := readReplay(stored[i].Value)
		if problem != nil {
			continue
		}
		if row.Name == name {
			return ErrReplayExists
		}
		if all++; row.State != ReplayRunning {
			over = append(over, ended{row, stored[i]})
		}
	}
	slices.SortFunc(over, func(a, b ended) int {
		return cmp.Or(cmp.Compare(a.State, b.State), a.Moved.Compare(b.Moved)) // done comes before stopped
	})
	for ; all >= MaxReplays; all-- {
		if len(over) == 0 {
			return &FieldError{Field: "Replay.Name", Problem: fmt.Sprintf("would name one replay too many: %d replays run, and the limit is %d. Wait until a replay is done, or stop a replay", all, MaxReplays)}
		}
		gone := over[0].as
		gone.Name, gone.Value = over[0].Name, ""
		if _, err := r.store.SetReplay(ctx, r.db, gone.Version, gone, nil); err != nil {
			return err
		}
		over = over[1:]
	}
	return nil
}
