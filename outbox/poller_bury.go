package outbox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/reason"
)

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
