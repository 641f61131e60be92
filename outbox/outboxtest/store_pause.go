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
	if _, paused := s.pauses[pause.Kind]; !paused {
		s.pauses[pause.Kind] = pause.Since
	}
	return nil
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
	for kind, since := range s.pauses {
		list = append(list, outbox.Pause{Kind: kind, Since: since})
	}
	return list, nil
}
