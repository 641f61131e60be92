package faultrun

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/proof/checker"
)

// ownIDs is a store to which half of the events seem to have ids of the outbox's own: the ledger knows
// an event before it is written, so each event gets its id from the writer, and the statement for ids
// that are surely new would not run.
//
// The store also records which types of events are paused, as the process learns it.
type ownIDs struct {
	*sqlstore.Store
	n *node

	mu     sync.Mutex
	paused []string
}

// InsertOnce implements [outbox.Store].
func (s *ownIDs) InsertOnce(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) ([]string, error) {
	if envs[0].UniqueKey != "" || s.n.chance("own ids", envs[0].EventID) < 50 {
		return s.Store.InsertOnce(ctx, tx, envs, lease, due)
	}
	ids := make([]string, len(envs))
	for i := range envs {
		ids[i] = envs[i].EventID
	}
	return ids, s.Insert(ctx, tx, envs, lease, due)
}

// Paused implements [outbox.Store].
func (s *ownIDs) Paused(ctx context.Context, db outbox.DB) ([]outbox.Pause, error) {
	list, err := s.Store.Paused(ctx, db)
	if err == nil {
		types := make([]string, len(list))
		for i, pause := range list {
			types[i] = string(pause.Kind.EventType)
		}
		s.learn(func([]string) []string { return types })
	}
	return list, err
}

// Pause implements [outbox.Store].
func (s *ownIDs) Pause(ctx context.Context, db outbox.DB, pause outbox.Pause) error {
	err := s.Store.Pause(ctx, db, pause)
	if err == nil {
		s.learn(func(types []string) []string { return append(slices.Clone(types), string(pause.Kind.EventType)) })
	}
	return err
}

// learn records the types that are paused, if other types are paused than before.
func (s *ownIDs) learn(change func(types []string) []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := change(s.paused)
	slices.Sort(now)
	if now = slices.Compact(now); !slices.Equal(now, s.paused) {
		s.paused = now
		s.n.log.Add(checker.Record{Op: checker.OpPauses, Types: now})
	}
}
