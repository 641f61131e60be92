package outboxtest

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox"
)

// pauseID is what a pause is for: a kind, or a key of the kind.
type pauseID struct {
	kind        outbox.EventKind
	aggregateID string
}

// Pause implements [outbox.Store].
func (s *Store) Pause(ctx context.Context, _ outbox.DB, pause outbox.Pause) error {
	if err := s.lock(ctx, "pausing "+pause.Kind.String()); err != nil {
		return err
	}
	defer s.mu.Unlock()
	id := pauseID{pause.Kind, pause.AggregateID}
	if old, is := s.pauses[id]; is && pause.Automatic && !s.isOver(old) && (!old.Automatic || !old.Until.Before(pause.Until)) {
		return nil
	}
	s.pauses[id] = pause
	return nil
}

// isOver reports whether a pause has ended.
func (s *Store) isOver(pause outbox.Pause) bool {
	return !pause.Until.IsZero() && !pause.Until.After(s.clock())
}

// Resume implements [outbox.Store].
func (s *Store) Resume(ctx context.Context, _ outbox.DB, kind outbox.EventKind, aggregateID string) error {
	if err := s.lock(ctx, "resuming "+kind.String()); err != nil {
		return err
	}
	defer s.mu.Unlock()
	delete(s.pauses, pauseID{kind, aggregateID})
	return nil
}

// Paused implements [outbox.Store].
func (s *Store) Paused(ctx context.Context, _ outbox.DB) ([]outbox.Pause, error) {
	if err := s.lock(ctx, "listing pauses"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []outbox.Pause
	for _, pause := range s.pauses {
		if !s.isOver(pause) {
			list = append(list, pause)
		}
	}
	return list, nil
}
