package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxkit/outbox-go/outbox"
)

// splitTries is how often Split begins, each time without the events that Split cannot change.
const splitTries = 3

// errStale says that some of the events must not be changed.
var errStale = errors.New("rows changed while the statement ran")

// splitLease is the lease of the inserted rows until their outcomes are marked, in the same
// transaction. The lease keeps these marks from rows that were there before.
const splitLease = "split"

// Split implements [outbox.Store].
func (s *Store) Split(ctx context.Context, db outbox.DB, outcome outbox.Outcome, splits []outbox.Split) (left map[string]outbox.RowState, err error) {
	if outcome != outbox.OutcomeDone && outcome != outbox.OutcomeDelete {
		return nil, fmt.Errorf("outbox: splitting events on table %s: the outcome is %s; only done and delete finish an event", s.name(), outcome)
	}
	splits = slices.Clone(splits)
	for range splitTries {
		if len(splits) == 0 {
			return left, s.err
		}
		_, err = s.changed(ctx, func() (int, error) { return 0, s.splitAll(ctx, db, outcome, splits) })
		if !errors.Is(err, errStale) {
			return left, err
		}
		ids := make([]string, len(splits))
		for i := range splits {
			ids[i] = splits[i].EventID
		}
		states, err := s.states(ctx, db, ids)
		if err != nil {
			return nil, err
		}
		splits = slices.DeleteFunc(splits, func(split outbox.Split) bool {
			state := states[split.EventID]
			if state.Exists && state.Status != outbox.StatusDone && passes(state, &split.Mark) {
				return false
			}
			if left == nil {
				left = map[string]outbox.RowState{}
			}
			left[split.EventID] = state
			return true
		})
	}
	return nil, s.fail(fmt.Sprintf("splitting %d events", len(splits)), err)
}

// splitAll splits all of the events or no event.
func (s *Store) splitAll(ctx context.Context, db outbox.DB, outcome outbox.Outcome, splits []outbox.Split) error {
	marks := make([]outbox.Mark, len(splits))
	var envs []outbox.Envelope
	rows := map[outbox.Outcome][]outbox.Mark{}
	for i := range splits {
		marks[i] = splits[i].Mark
		for _, row := range splits[i].Rows {
			row.Mark.Lease = splitLease
			envs = append(envs, row.Envelope)
			rows[row.Outcome] = append(rows[row.Outcome], row.Mark)
		}
	}
	what := fmt.Sprintf("splitting %d events from %s on", len(splits), marks[0].EventID)
	return s.inTx(ctx, db, what, nil, func(tx *sql.Tx) error {
		if n, err := s.markIn(ctx, tx, outcome, marks); err != nil || n < len(marks) {
			return cmp.Or(err, errStale)
		}
		chunks := s.chunked(nil, envs, splitLease)
		for i := range chunks {
			chunks[i].absent = true
		}
		if err := s.insertChunks(ctx, tx, chunks); err != nil {
			return err
		}
		for _, outcome := range slices.Sorted(maps.Keys(rows)) {
			if _, err := s.markIn(ctx, tx, outcome, rows[outcome]); err != nil {
				return err
			}
		}
		return nil
	})
}

// markIn marks rows in a transaction and returns how many rows changed.
func (s *Store) markIn(ctx context.Context, tx *sql.Tx, outcome outbox.Outcome, marks []outbox.Mark) (int, error) {
	_, n, err := s.markEach(ctx, tx, outcome, s.markChunks(outcome, byFence(marks)))
	return n, err
}
