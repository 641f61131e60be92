package faultrun

import (
	"context"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/proof/checker"
)

// replay replays each dead letter once, as an operator would.
func (n *node) replay(ctx context.Context) {
	replayed := map[string]bool{}
	for ctx.Err() == nil {
		page, _ := n.ob.DeadLetters().Find(ctx, outbox.DeadQuery{Limit: 100})
		for i := range page.Rows {
			id, began := page.Rows[i].EventID, time.Now()
			if replayed[id] || n.ob.DeadLetters().Replay(ctx, id) != nil {
				continue
			}
			replayed[id] = true
			n.log.Add(checker.Record{At: began, Op: checker.OpReplayed, Events: []checker.Event{{ID: id}}})
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
