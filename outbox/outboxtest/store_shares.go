package outboxtest

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox"
)

// Shares implements [outbox.Store].
func (s *Store) Shares(ctx context.Context, _ outbox.DB, kind outbox.EventKind) (outbox.Shares, error) {
	if err := s.lock(ctx, "reading the shares of "+kind.String()); err != nil {
		return outbox.Shares{}, err
	}
	defer s.mu.Unlock()
	shares := s.shares[kind]
	shares.Now = s.clock()
	return shares, nil
}

// AllShares implements [outbox.Store].
func (s *Store) AllShares(ctx context.Context, _ outbox.DB) ([]outbox.Shares, error) {
	if err := s.lock(ctx, "reading the shares of all kinds"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []outbox.Shares
	for _, shares := range s.shares {
		shares.Now = s.clock()
		list = append(list, shares)
	}
	return list, nil
}

// SetShares implements [outbox.Store].
func (s *Store) SetShares(ctx context.Context, _ outbox.DB, kind outbox.EventKind, was string, next outbox.Shares) (bool, error) {
	if err := s.lock(ctx, "setting the shares of "+kind.String()); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	if s.shares[kind].Version != was {
		return false, nil
	}
	s.shares[kind] = outbox.Shares{Version: next.Version, Value: next.Value}
	return true, nil
}
