package soak

import (
	"context"
	"runtime"
	"time"
)

// Sample is a measurement at a time, and of the time since the previous sample.
type Sample struct {
	// At is the time since the run began. Held: a transaction was held open.
	At   time.Duration
	Held bool
	// Written and Delivered are events a second.
	Written, Delivered float64
	// Hot are the times from the write of an event to the delivery, with the commit in between.
	// Cold are the times from when a delayed or failed event became due.
	Hot, Cold Spread
	// Claims are the times of the claims of all nodes.
	Claims Spread
	// Read is how long a read of the rows that a claim reads from the start of the table takes, and
	// Pages how many pages the read touches, on PostgreSQL.
	Read  time.Duration
	Pages int64
	// Table and Indexes are bytes. Dead is the garbage that the database still has to remove: rows
	// on PostgreSQL, transactions in the history list on MySQL.
	Table, Indexes, Dead int64
	// Vacuums is how often autovacuum was done with the table so far.
	Vacuums int64
	// Memory and Goroutines are the figures of the program, with all nodes.
	Memory     uint64
	Goroutines int
}

// sampler takes samples.
type sampler struct {
	db                 *database
	events             *ledger
	meters             *meters
	began, last        time.Time
	written, delivered int
	samples            []Sample
	tell               func(Sample)
}

// watch takes samples until the time is over, and holds a transaction open meanwhile.
func (s *sampler) watch(ctx context.Context, o Options) (err error) {
	h := hold{from: o.Time / 6, until: o.Time/6 + o.Held}
	defer func() {
		if h.release != nil {
			_ = h.release()
		}
	}()
	s.last = s.began
	ticks := time.NewTicker(o.Every)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		sample, err := s.take(ctx, h.held())
		if err != nil {
			return err
		}
		s.samples = append(s.samples, sample)
		if s.tell != nil {
			s.tell(sample)
		}
		now := time.Since(s.began)
		if now >= o.Time {
			return nil
		}
		if err := h.step(ctx, s.db, now); err != nil {
			return err
		}
	}
}

func (s *sampler) take(ctx context.Context, held bool) (Sample, error) {
	now := time.Now()
	written, delivered := s.events.counts()
	seconds := now.Sub(s.last).Seconds()
	sample := Sample{
		At: now.Sub(s.began).Round(time.Millisecond), Held: held,
		Written: float64(written-s.written) / seconds, Delivered: float64(delivered-s.delivered) / seconds,
		Hot: s.meters.hot.take(), Cold: s.meters.cold.take(), Claims: s.meters.claims.take(),
		Goroutines: runtime.NumGoroutine(),
	}
	s.last, s.written, s.delivered = now, written, delivered
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	sample.Memory = memory.HeapInuse
	return sample, s.db.measure(ctx, &sample)
}
