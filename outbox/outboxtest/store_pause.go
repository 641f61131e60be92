package outboxtest

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox"
)

// Pause implements [outbox.Store].
func (s *Store) Pause(ctx context.Context, _ outbox.DB, pause outbox.Pause) error {
	if err := s.lock(ctx, "pausing "+pause.Kind.String()); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if old, is := s.pauses[pause.Kind]; is && pause.Automatic && !s.isOver(old) && (!old.Automatic || !old.Until.Before(pause.Until)) {
		return nil
	}
	s.pauses[pause.Kind] = pause
	return nil
}

// isOver reports whether a pause has ended.
func (s *Store) isOver(pause outbox.Pause) bool {
	return !pause.Until.IsZero() && !pause.Until.After(s.clock())
}

// Resume implements [outbox.Store].
func (s *Store) Resume(ctx context.Context, _ outbox.DB, kind outbox.EventKind) error {
	if err := s.lock(ctx, "resuming "+kind.String()); err != nil {
		return err
	}
	defer s.mu.Unlock()
	delete(s.pauses, kind)
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
