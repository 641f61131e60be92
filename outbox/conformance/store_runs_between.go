package conformance

import (
	"context"
	"database/sql"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// runsReadBetween is for stores that read runs with several statements: between two statements the
// first row of a key is delivered and fails. The rows behind this row must wait.
func runsReadBetween(s *storeSuite) {
	for statement := 1; statement <= 3; statement++ {
		for _, due := range []time.Duration{0, 2 * later} {
			ids := s.keyed("key", keyRow{}, keyRow{}, keyRow{})
			db := &interrupted{DB: s.DB, at: statement, run: func() {
				s.edit(ids[0], func(r *RawRow) { r.Status, r.Attempts, r.AvailableAt = outbox.StatusRetry, 1, suiteTime.Add(due) })
			}}
			runs, err := s.Store.(outbox.RunReader).ReadRuns(s.ctx, db, outbox.RunQuery{
				Now: suiteTime.Add(later), LeaseDuration: time.Minute, Length: runLength, Limit: 100,
			})
			s.ok("ReadRuns", err)
			for _, run := range runs.EventIDs {
				if run[0] != ids[0] {
					s.t.Fatalf("a run begins with row %s, behind %s, which failed before statement %d of the read", run[0], ids[0], statement)
				}
			}
			for _, id := range ids {
				s.edit(id, func(r *RawRow) { r.Status, r.DoneAt = outbox.StatusDone, suiteTime })
			}
		}
	}
}

// interrupted runs a function before a query.
type interrupted struct {
	outbox.DB
	queries, at int
	run         func()
}

func (i *interrupted) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if i.queries++; i.queries == i.at {
		i.run()
	}
	return i.DB.QueryContext(ctx, query, args...)
}
