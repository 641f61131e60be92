package tenants

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/outboxkit/outbox-go/outbox"
)

// statsAtOnce is how many tables Stats reads at once.
const statsAtOnce = 8

// Stats are the [outbox.Stats] of all tenants that run together, so that one WatchTable of a metrics adapter
// serves all of them: counts are added, OldestDueAge and ReplayProgressAge are the greatest, LastPoll the earliest, and Late has
// each kind once, with the greatest lateness. Shares is empty. A tenant whose table cannot be read is left out,
// and the error names such a tenant if no table could be read.
func (m *Manager[T]) Stats(ctx context.Context) (outbox.Stats, error) {
	outboxes := m.Outboxes()
	names := make(chan string)
	var mu sync.Mutex
	var sum outbox.Stats
	var failed error
	read := 0
	var readers sync.WaitGroup
	for range min(statsAtOnce, len(outboxes)) {
		readers.Go(func() {
			for name := range names {
				stats, err := outboxes[name].Stats(ctx)
				mu.Lock()
				switch {
				case err == nil:
					read++
					add(&sum, &stats)
				case failed == nil:
					failed = fmt.Errorf("tenants: reading the table of %s: %w", name, err)
				}
				mu.Unlock()
			}
		})
	}
	for name := range outboxes {
		names <- name
	}
	close(names)
	readers.Wait()
	if read > 0 || len(outboxes) == 0 {
		return sum, nil
	}
	return outbox.Stats{}, failed
}

// add adds the figures of a tenant.
func add(sum, s *outbox.Stats) {
	sum.Pending += s.Pending
	sum.Due += s.Due
	sum.Delayed += s.Delayed
	sum.Dead += s.Dead
	sum.DuePaused += s.DuePaused
	sum.HotDepth += s.HotDepth
	sum.ColdDepth += s.ColdDepth
	sum.OldestDueAge = max(sum.OldestDueAge, s.OldestDueAge)
	sum.ReplayProgressAge = max(sum.ReplayProgressAge, s.ReplayProgressAge)
	sum.WriteFailures = max(sum.WriteFailures, s.WriteFailures)
	sum.PollInterval = max(sum.PollInterval, s.PollInterval)
	if s.PollInterval > 0 && (sum.LastPoll.IsZero() || s.LastPoll.Before(sum.LastPoll)) {
		sum.LastPoll = s.LastPoll
	}
	for _, late := range s.Late {
		i := slices.IndexFunc(sum.Late, func(l outbox.LateKind) bool { return l.Kind == late.Kind })
		if i < 0 {
			sum.Late = append(sum.Late, late)
			continue
		}
		sum.Late[i].Events += late.Events
		sum.Late[i].OldestDueAge = max(sum.Late[i].OldestDueAge, late.OldestDueAge)
	}
	for _, pause := range s.Paused {
		i := slices.IndexFunc(sum.Paused, func(p outbox.Pause) bool { return p.Kind == pause.Kind && p.AggregateID == pause.AggregateID })
		if i < 0 {
			sum.Paused = append(sum.Paused, pause)
		} else if pause.Since.Before(sum.Paused[i].Since) {
			sum.Paused[i] = pause
		}
	}
	for _, kind := range s.Unheard {
		if !slices.Contains(sum.Unheard, kind) {
			sum.Unheard = append(sum.Unheard, kind)
		}
	}
}
