package dashboard

import (
	"context"
	"net/http"

	"github.com/outboxkit/outbox-go/outbox"
)

// confirmation is a change that the user is asked to confirm.
type confirmation struct {
	change
	Letters bool // the change is about dead letters
	Count   int64
	More    bool // there may be more than Count
	// Unknown says that no event of the kind to pause was found; Similar are kinds that the
	// user may have meant.
	Unknown bool
	Similar []outbox.EventKind
}

// confirm asks whether a change shall be made, and says how many events the change is about.
func (p *page) confirm() error {
	in, err := p.form("confirm")
	if err != nil {
		return err
	}
	c, err := in.change()
	if err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	asked := confirmation{change: c, Letters: c.Action == "replay" || c.Action == "delete"}
	switch {
	case asked.Letters:
		asked.Count, asked.More, err = p.size(ctx, &c.filter)
	case c.Action == "pause":
		asked.Unknown, asked.Similar, err = p.unknown(ctx, c.Kind)
	}
	if err != nil {
		return err
	}
	return p.show(http.StatusOK, "confirm.html", "Confirm", asked)
}

// size counts the dead letters of a filter; more says that there may be more. The method looks at
// [outbox.StatsLimit] rows at most.
func (p *page) size(ctx context.Context, f *outbox.DeadFilter) (n int64, more bool, err error) {
	switch {
	case f.EventIDs != nil:
		n, err = p.outbox.DeadLetters().Count(ctx, *f)
		return n, false, err
	case f.Group != "":
		groups, more, err := p.outbox.DeadLetters().Groups(ctx, *f) // reads no more than GroupLimit
		for _, g := range groups {
			n += int64(g.Count)
		}
		return n, more, err
	case f.EventType == "" && f.AggregateType == "" && f.AggregateID == "" && f.TenantID == "" && f.Since.IsZero() && f.Until.IsZero():
		stats, err := p.outbox.Stats(ctx) // the counts end at StatsLimit
		return stats.Dead, stats.Dead >= outbox.StatsLimit, err
	}
	query := outbox.EventQuery{Limit: outbox.MaxFindLimit}
	query.Statuses, query.Since, query.Until = []outbox.Status{outbox.StatusDead}, f.Since, f.Until
	query.EventType, query.AggregateType, query.AggregateID, query.TenantID = f.EventType, f.AggregateType, f.AggregateID, f.TenantID
	for range outbox.StatsLimit / outbox.SearchLimit {
		found, err := p.outbox.FindEvents(ctx, query)
		if n += int64(len(found.Rows)); err != nil || found.Next == "" {
			return n, false, err
		}
		query.After = found.Next
	}
	return n, true, nil
}
