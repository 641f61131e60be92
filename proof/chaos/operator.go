package chaos

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// operator acts as people act on a table from which others deliver. The errors of an operator do
// not count: the database may be away.
type operator struct {
	ob   *outbox.Outbox
	db   *sql.DB
	kind string
	// deletions are ids of deletions that may be undone.
	deletions []string
}

// operate replays, deletes and restores dead letters and pauses types, until ctx ends.
func (o *operator) operate(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, time.Duration(100+rand.IntN(400))*time.Millisecond)
		switch rand.IntN(5) {
		case 0:
			o.replay(ctx, 1+rand.IntN(5))
		case 1:
			o.delete(ctx, 1+rand.IntN(2))
		case 2:
			_, _ = o.ob.DeadLetters().ReplayAll(ctx, outbox.DeadFilter{}, 5)
		case 3:
			o.pause(ctx)
		case 4:
			o.restore(ctx)
		}
	}
}

func (o *operator) replay(ctx context.Context, n int) {
	page, _ := o.ob.DeadLetters().Find(ctx, outbox.DeadQuery{Limit: n})
	for _, l := range page.Rows {
		_ = o.ob.DeadLetters().Replay(ctx, l.EventID)
	}
}

func (o *operator) delete(ctx context.Context, n int) {
	page, _ := o.ob.DeadLetters().Find(ctx, outbox.DeadQuery{Limit: n})
	for _, l := range page.Rows {
		if d, _ := o.ob.DeadLetters().Delete(ctx, l.EventID); d.ID != "" {
			o.deletions = append(o.deletions, d.ID)
		}
	}
}

// restore undoes half of the deletions, of which some are undone already, and some were never carried out.
func (o *operator) restore(ctx context.Context) {
	for _, id := range o.deletions {
		if rand.IntN(2) == 0 {
			_, _ = o.ob.DeadLetters().Restore(ctx, id)
		}
	}
}

func (o *operator) pause(ctx context.Context) {
	all := slices.Concat(faultrun.Types, faultrun.Seldom)
	kind := faultrun.Kind(all[rand.IntN(len(all))])
	pause, d := outbox.Pause{Kind: kind}, time.Duration(rand.IntN(1000))*time.Millisecond
	if rand.IntN(4) == 0 {
		d += 2 * time.Second
	}
	if rand.IntN(2) == 0 {
		pause.Until = time.Now().Add(d)
	}
	_ = o.ob.Pause(ctx, pause)
	if wait(ctx, d); !pause.Until.IsZero() {
		return // the pause has ended
	}
	_ = o.ob.Resume(context.WithoutCancel(ctx), kind)
}

// resume ends all pauses.
func (o *operator) resume(ctx context.Context) error {
	var errs []error
	for _, event := range slices.Concat(faultrun.Types, faultrun.Seldom) {
		errs = append(errs, o.ob.Resume(ctx, faultrun.Kind(event)))
	}
	return errors.Join(errs...)
}

// bury deletes all dead letters again and again, until ctx ends: they may block keys.
func (o *operator) bury(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, time.Second)
		o.delete(ctx, 500)
	}
}

// migrate alters the table again and again, until ctx ends.
func (o *operator) migrate(ctx context.Context, spec faultrun.Spec) {
	concurrently := ""
	if o.kind == "postgres" {
		concurrently = "CONCURRENTLY "
	}
	drop := "DROP INDEX idx_chaos"
	if o.kind == "mysql" {
		drop += " ON outbox_event"
	}
	statements := []string{
		"ALTER TABLE outbox_event ADD COLUMN chaos_added VARCHAR(20)",
		"CREATE INDEX " + concurrently + "idx_chaos ON outbox_event (created_at)",
		drop,
		"ALTER TABLE outbox_event DROP COLUMN chaos_added",
	}
	for i := 0; ctx.Err() == nil; i++ {
		wait(ctx, time.Second)
		_, _ = o.db.ExecContext(ctx, statements[i%len(statements)])
		_ = faultrun.CreateSchema(ctx, o.db, spec)
	}
}
