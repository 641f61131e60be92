package outboxtest

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox"
)

// Split implements [outbox.Store].
func (s *Store) Split(ctx context.Context, _ outbox.DB, outcome outbox.Outcome, splits []outbox.Split) (map[string]outbox.RowState, error) {
	if err := s.lock(ctx, "splitting", idsOf(splits, func(split outbox.Split) string { return split.EventID })...); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if outcome != outbox.OutcomeDone && outcome != outbox.OutcomeDelete {
		return nil, s.fail("splitting", errOutcome(outcome))
	}
	now := s.clock()
	left := map[string]outbox.RowState{}
	for _, split := range splits {
		if !s.mark(outcome, split.Mark, now) {
			left[split.EventID] = s.state(split.EventID)
			continue
		}
		for _, row := range split.Rows {
			if _, _, there := s.insert([]outbox.Envelope{row.Envelope}, []string{row.Envelope.EventID}, "", now, nil); len(there) == 0 {
				s.apply(s.rows[row.Envelope.EventID], row.Outcome, row.Mark, now)
			}
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	return left, nil
}
