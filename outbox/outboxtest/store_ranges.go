package outboxtest

import (
	"context"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Ranges implements [outbox.Store].
func (s *Store) Ranges(ctx context.Context, _ outbox.DB) (outbox.Ranges, error) {
	if err := s.lock(ctx, "reading the ranges"); err != nil {
		return outbox.Ranges{}, err
	}
	defer s.mu.Unlock()
	ranges := s.ranges
	ranges.Ranges, ranges.Now = slices.Clone(s.ranges.Ranges), s.clock()
	return ranges, nil
}

// SetRanges implements [outbox.Store].
func (s *Store) SetRanges(ctx context.Context, _ outbox.DB, was string, by time.Time, next outbox.Ranges) (bool, error) {
	if err := s.lock(ctx, "setting ranges"); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	if s.ranges.Version != was || s.clock().After(by) {
		return false, nil
	}
	s.ranges = outbox.Ranges{Version: next.Version, Ranges: slices.Clone(next.Ranges)}
	return true, nil
}

// Reach implements [outbox.Store].
func (s *Store) Reach(ctx context.Context, _ outbox.DB, q outbox.PollQuery) (outbox.Reach, error) {
	if err := s.lock(ctx, "looking for due events"); err != nil {
		return outbox.Reach{}, err
	}
	defer s.mu.Unlock()
	var reach outbox.Reach
	for _, r := range s.polled(q) {
		reach.End = cursorOf(r)
		if r.leased() {
			reach.Expired++
		} else {
			reach.Fresh++
		}
	}
	return reach, nil
}
