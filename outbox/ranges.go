package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

const (
	// rangeLasts is how long the right to a range lasts unless it is renewed: the time after which
	// other processes deliver the events of a process that died.
	rangeLasts = 10 * time.Second
	// rangePatience limits a statement that renews rights.
	rangePatience = 2 * time.Second
)

// suspectName ends the names of ranges that were taken over, and of the leases of their rows: another
// process may have had the rows in hand when that process died, and the death was not counted as an
// attempt.
const suspectName = "/suspect"

// errRangesStay is why a process does not try again at once to set the ranges: no other process set
// them meanwhile.
var errRangesStay = errors.New("the row 'ranges', 'table' of the control table stays as it is: the statement came too late, or a trigger, a rule or a policy skips the update")

// rights are the ranges of due rows that this process may deliver in [MultiNode] without
// TenantsInTurn. No row changes until it is marked. A single row of the control table lists the
// ranges of all processes, and each process replaces the list by compare-and-set. rights are safe for
// concurrent use.
type rights struct {
	db       DB
	store    Store
	owner    string
	prefix   string // of the names of this process's ranges
	track    *tracker
	duration time.Duration
	freed    func() // called when rows became free for every process
	failing  logburst.Burst

	busy   chan struct{} // holds a token while the fields below are used, also during statements
	held   []*right
	readAt time.Time // when the statement that read the list began
	latest bool      // this process set the list last, as far as it knows
	doubt  bool      // the answer to a set is lost: it may have begun a right
	last   int64     // the number of the last range
	stays  bool      // the last set did not replace the list, which has not been read since

	mu       sync.Mutex // guards the list; whoever holds the token may read the list without mu
	list     Ranges     // of all processes, as last read or set
	loadedAt time.Time  // when the list had been read

	ctx    context.Context // ends when the rights are closed
	cancel context.CancelFunc
	done   chan struct{} // nil: not started
}

func newRights(leases *tableLeases, log *slog.Logger) *rights {
	r := &rights{
		db: leases.db, store: leases.store, owner: leases.names.Owner, track: leases.track, freed: leases.freed,
		duration: min(leases.lasts, rangeLasts), busy: make(chan struct{}, 1),
	}
	r.prefix = r.owner + "/" + rand.Text()[:8] + "/" // another process may have the same owner
	r.failing = logburst.Burst{
		Log: log, Level: slog.LevelError, Message: "outbox: the rights to ranges of events could not be renewed; trying again",
		Ended: "outbox: the rights to ranges of events are renewed again",
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Start begins to renew the rights. Call it once.
func (r *rights) Start() {
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		for {
			wait.Sleep(r.ctx, r.duration/5)
			if r.ctx.Err() != nil {
				return
			}
			ctx, cancel := context.WithTimeout(r.ctx, min(rangePatience, r.duration/5))
			_, err := r.tidy(ctx)
			cancel()
			switch {
			case err == nil:
				r.failing.End()
			case r.ctx.Err() == nil:
				r.failing.Add(1, logKeyOwner, r.owner, logKeyError, err.Error())
			}
		}
	}()
}

// Close gives up the ranges whose events are stored or given back, in at most the given time. The
// other ranges expire: their events are in hand, or another process had them. Close does not wait for
// a statement of a driver that ignores the end of a context.
func (r *rights) Close(limit time.Duration) error {
	r.cancel()
	if r.done == nil {
		return nil
	}
	defer r.failing.Flush()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	ended, given := make(chan struct{}), error(nil)
	go func() {
		defer close(ended)
		defer cancel()
		<-r.done
		given = r.giveUp(ctx)
	}()
	if !wait.For(context.Background(), ended, limit+wait.Grace) {
		return context.DeadlineExceeded
	}
	return given
}

// giveUp tries to give finished ranges up until that succeeds, or until ctx ends.
func (r *rights) giveUp(ctx context.Context) error {
	for {
		_, err := r.tidy(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		wait.Sleep(ctx, 100*time.Millisecond)
	}
}

// begin takes the token.
func (r *rights) begin(ctx context.Context) error {
	select {
	case r.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end gives the token to the next.
func (r *rights) end() { <-r.busy }

// gap is a place between the ranges of a list.
type gap struct {
	after, upto Cursor // upto is zero: to the end of the table
	at          int    // the index of a range in the gap
	version     string // of the list
	own         *right // not nil: instead of a gap, a range of this process
	held        bool   // there is no gap: another process holds the table
}

// gap is the first gap, or range of this process, behind a place.
func (r *rights) gap(ctx context.Context, place Cursor) (gap, error) {
	if err := r.begin(ctx); err != nil {
		return gap{}, err
	}
	defer r.end()
	if !r.latest {
		if err := r.load(ctx); err != nil {
			return gap{}, err
		}
	}
	return r.behind(place), nil
}

// readAgain keeps a range, whose rows are to be read, until readEnded; false when the right is over.
func (r *rights) readAgain(ctx context.Context, held *right) (bool, error) {
	if err := r.begin(ctx); err != nil {
		return false, err
	}
	defer r.end()
	return r.own(held.Name) == held && r.track.readAgain(held), nil
}

// behind is gap in the list as it was last read or set; the token is held.
func (r *rights) behind(place Cursor) gap {
	ranges := r.list.Ranges
	g := gap{after: place, at: place.behind(ranges), version: r.list.Version}
	if g.at < len(ranges) && ranges[g.at].After != place && !place.surelyBefore(ranges[g.at].After) {
		g.after = ranges[g.at].After // the place is within the range, or may be
	}
	for ; g.at < len(ranges) && ranges[g.at].After == g.after && !r.isOver(ranges[g.at]); g.at++ {
		if own := r.own(ranges[g.at].Name); own != nil && r.track.readAgain(own) {
			g.upto, g.own = own.Upto, own
			break
		}
		if g.held = ranges[g.at].isHold(); g.held {
			return g
		}
		g.after = ranges[g.at].Upto
	}
	for end := g.at; end < len(ranges) && g.own == nil; end++ {
		if !r.isOver(ranges[end]) {
			g.upto = ranges[end].After
			break
		}
	}
	if g.after.surelyBefore(place) { // the place is within a range of this process
		g.after = place
	}
	return g
}

// stillIs reports whether the gap is free in the list as it is now; the token is held. The list may
// have changed because this process gave up ranges, as during a read that takes long.
func (r *rights) stillIs(g *gap) bool {
	if r.list.Version == g.version {
		return true
	}
	if !r.latest {
		return false
	}
	now := r.behind(g.after)
	r.track.readEnded(now.own)
	if now.own != nil || now.held || now.after != g.after || now.upto != g.upto && !now.upto.IsZero() {
		return false
	}
	*g = now
	return true
}

// isOver reports whether the next set gives a range of this process up, so that the range is a part
// of a gap; the token is held.
func (r *rights) isOver(listed Range) bool {
	own := r.own(listed.Name)
	return own != nil && r.track.isFinished(own)
}

// behind is the index of the first range that is not before the place. The order of the list says
// which ranges are before a place at which a range ends or begins.
func (c Cursor) behind(ranges []Range) int {
	if i := slices.IndexFunc(ranges, func(r Range) bool { return r.Upto == c && !r.isHold() }); i >= 0 {
		return i + 1
	}
	if i := slices.IndexFunc(ranges, func(r Range) bool { return r.After == c }); i >= 0 {
		return i
	}
	i := slices.IndexFunc(ranges, func(r Range) bool { return r.isHold() || !r.Upto.surelyBefore(c) })
	if i < 0 {
		return len(ranges)
	}
	return i
}

// surelyBefore reports whether a place is before another place, whatever the order in which the
// database has the ids of events.
func (c Cursor) surelyBefore(other Cursor) bool {
	if order := c.AvailableAt.Compare(other.AvailableAt); order != 0 {
		return order < 0
	}
	return c.CreatedAt.Before(other.CreatedAt)
}

// isLeft reports whether a range is this process's although the process does not have the right: the
// answer to a set was lost. A range that was taken over expires then, because its rows are still
// suspects. The token is held.
func (r *rights) isLeft(listed Range) bool {
	return strings.HasPrefix(listed.Name, r.prefix) && !strings.HasSuffix(listed.Name, suspectName) && r.own(listed.Name) == nil
}

// own is the right of this process with a name; the token is held.
func (r *rights) own(name string) *right {
	if i := slices.IndexFunc(r.held, func(held *right) bool { return held.Name == name }); i >= 0 {
		return r.held[i]
	}
	return nil
}

// hasExpired reports whether the list has a range whose process died or was stopped.
func (r *rights) hasExpired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.expired() >= 0
}

// expired is the index of a range whose process died or was stopped; negative if no range's was. The
// token or mu is held.
func (r *rights) expired() int {
	now := r.list.Now.Add(time.Since(r.loadedAt)) // the database's clock is past now
	return slices.IndexFunc(r.list.Ranges, func(listed Range) bool { return !listed.lastsAt(now) })
}

// take takes a gap up to a place; nil when the list has changed.
func (r *rights) take(ctx context.Context, g gap, upto Cursor) (*right, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.end()
	if !r.stillIs(&g) {
		return nil, nil
	}
	taken := r.next(g.after, upto)
	ok, err := r.set(ctx, slices.Insert(slices.Clone(r.list.Ranges), g.at, taken.Range), r.soon(), taken)
	if !ok {
		return nil, err
	}
	return taken, nil
}

// takeExpired takes a range whose process died or was stopped; nil when there is no such range, or
// another process was faster.
func (r *rights) takeExpired(ctx context.Context) (*right, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.end()
	if !r.latest {
		if err := r.load(ctx); err != nil {
			return nil, err
		}
	}
	i := r.expired()
	if i < 0 {
		return nil, nil
	}
	ranges := slices.Clone(r.list.Ranges)
	if ranges[i].isHold() { // of a process in another mode, whose rows are free now
		ended, err := r.set(ctx, slices.Delete(ranges, i, i+1), r.soon())
		if ended {
			r.freed()
		}
		return nil, err
	}
	taken := r.next(ranges[i].After, ranges[i].Upto)
	taken.Name += suspectName
	taken.suspects, ranges[i] = true, taken.Range
	if ok, err := r.set(ctx, ranges, r.soon(), taken); !ok {
		return nil, err
	}
	return taken, nil
}

// expire ends the right to a range that was taken over and is not finished, and leaves the range to
// the next process that takes over: the rows are still suspects.
func (r *rights) expire(ctx context.Context, from *right) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.end()
	for r.own(from.Name) == from {
		if err := r.load(ctx); err != nil {
			return err
		}
		ranges := slices.Clone(r.list.Ranges)
		if i := slices.IndexFunc(ranges, func(listed Range) bool { return listed.Name == from.Name }); i >= 0 {
			ranges[i].Until = r.list.Now.Add(-time.Microsecond)
		}
		ok, err := r.set(ctx, ranges, r.soon())
		if err != nil {
			return err
		}
		if ok {
			r.held = slices.DeleteFunc(r.held, func(held *right) bool { return held == from })
		}
	}
	return nil
}

// next is a right that the next set begins, with a read under way.
func (r *rights) next(after, upto Cursor) *right {
	r.last++
	return &right{
		Range: Range{Name: r.prefix + strconv.FormatInt(r.last, 36), After: after, Upto: upto, Until: r.now().Add(r.duration)},
		until: time.Now().Add(r.duration * 4 / 5), inHand: 1,
	}
}

// endOf is the end of a right by the database's clock.
func (r *rights) endOf(held *right) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.list.Ranges, func(listed Range) bool { return listed.Name == held.Name }); i >= 0 {
		return r.list.Ranges[i].Until
	}
	return held.Until
}

// lasts reports whether a right surely lasts.
func (r *rights) lasts(held *right) bool {
	r.track.mu.Lock()
	defer r.track.mu.Unlock()
	return time.Now().Before(held.until)
}

// tidy gives finished ranges up, and renews the others in time. left is how many ranges are left.
func (r *rights) tidy(ctx context.Context) (left int, err error) {
	if err := r.begin(ctx); err != nil {
		return 1, err
	}
	defer r.end()
	for (len(r.held) > 0 || r.doubt) && ctx.Err() == nil {
		if r.doubt || !r.latest {
			if err := r.load(ctx); err != nil {
				return len(r.held), err
			}
		}
		began, by := time.Now(), r.soon()
		ranges := slices.Clone(r.list.Ranges)
		var renewed []*right
		for i := range ranges {
			own, end := r.own(ranges[i].Name), ranges[i].Until
			if own == nil || !r.track.needsRight(own, began.Add(r.duration*3/5)) {
				continue
			}
			ranges[i].Until, renewed = r.now().Add(r.duration), append(renewed, own)
			if end.Before(by) { // a right that is over is not renewed: another process may have the rows
				by = end
			}
		}
		if len(renewed) == 0 && !slices.ContainsFunc(r.held, r.track.isFinished) && !slices.ContainsFunc(ranges, r.isLeft) {
			r.doubt = false
			break
		}
		ok, err := r.set(ctx, ranges, by)
		if ok {
			r.track.renewRights(renewed, began.Add(r.duration*4/5))
		}
		if ok || err != nil {
			return len(r.held), err
		}
	}
	return len(r.held), ctx.Err()
}

// now is a time that the database's clock has reached at most, if both clocks ran as fast.
func (r *rights) now() time.Time { return r.list.Now.Add(time.Since(r.readAt)) }

// soon is the time by which a set is carried out, by the database's clock. A right that the set
// begins lasts for 4/5 of its time from then on.
func (r *rights) soon() time.Time { return r.now().Add(r.duration / 5) }

// load reads the list; the token is held.
func (r *rights) load(ctx context.Context) error {
	began := time.Now()
	list, err := r.store.Ranges(ctx, r.db)
	if err != nil {
		return err
	}
	same := list.Version == r.list.Version
	if r.stays && same {
		r.stays = false
		return fmt.Errorf("outbox: setting the ranges of this process: %w", errRangesStay)
	}
	r.latest, r.readAt, r.stays = list.Version != "" && same, began, false
	r.mu.Lock()
	r.list, r.loadedAt = list, time.Now()
	r.mu.Unlock()
	r.held = slices.DeleteFunc(r.held, func(held *right) bool { // other processes have delivered the rows
		return !slices.ContainsFunc(list.Ranges, func(listed Range) bool { return listed.Name == held.Name })
	})
	return nil
}

// set replaces the list, without the ranges of this process that are finished, or that an earlier
// set added whose answer was lost. ok is false when another process was faster, or when the
// statement came later than by. The token is held.
func (r *rights) set(ctx context.Context, ranges []Range, by time.Time, taken ...*right) (ok bool, err error) {
	var kept, finished []*right
	for _, held := range append(r.held, taken...) {
		if r.track.isFinished(held) {
			finished = append(finished, held)
		} else {
			kept = append(kept, held)
		}
	}
	was := r.held
	r.held, r.latest = kept, false
	next := Ranges{Version: rand.Text(), Ranges: slices.DeleteFunc(ranges, func(listed Range) bool {
		return r.isLeft(listed) || slices.ContainsFunc(finished, func(held *right) bool { return held.Name == listed.Name })
	})}
	if ok, err = r.store.SetRanges(ctx, r.db, r.list.Version, by, next); err != nil {
		// The statement may be carried out later, so the finished ranges are not read again.
		r.held = slices.DeleteFunc(kept, func(held *right) bool { return slices.Contains(taken, held) })
		r.doubt = true
		return false, err
	}
	if !ok {
		r.held, r.stays = was, true
		return false, nil
	}
	r.latest, r.doubt = true, false
	r.mu.Lock()
	r.list.Version, r.list.Ranges = next.Version, next.Ranges
	r.mu.Unlock()
	if slices.ContainsFunc(finished, r.track.gaveBack) {
		r.freed()
	}
	return true, nil
}
