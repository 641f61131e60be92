package soak

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strconv"
	"time"
)

// Sample is a measurement at a time, and of the time since the previous sample.
type Sample struct {
	// At is the time since the run began, Span the time since the previous sample. Held: a
	// transaction was held open.
	At, Span time.Duration
	Held     bool
	// Written and Delivered are events a second.
	Written, Delivered float64
	// Hot are the times from the write of an event to the delivery, with the commit in between.
	// Cold are the times from when a delayed or failed event became due.
	Hot, Cold Spread
	// Backlog are the times from when an event of the background writer was written to the first
	// delivery, of a fiftieth of these events.
	Backlog Spread
	// Pending are events that are not delivered, DeadLetters those of them that are DEAD in the
	// table, on PostgreSQL.
	Pending     int
	DeadLetters int
	// Claims are the times of the statements by which all nodes claim or read due rows.
	Claims Spread
	// Read is how long a read of the rows that a claim reads from the start of the table takes, and
	// Pages how many pages the read touches, on PostgreSQL.
	Read  time.Duration
	Pages int64
	// Table and Indexes are bytes. Dead is the garbage that the database still has to remove: rows
	// on PostgreSQL, transactions in the history list on MySQL.
	Table, Indexes, Dead int64
	// Vacuums is how often autovacuum was done so far with the table, or with the partitions that
	// there are.
	Vacuums int64
	// Partitions is how many partitions the table has, WAL the bytes of write-ahead log that the
	// server wrote since the previous sample, on PostgreSQL.
	Partitions, WAL int64
	// Memory, the heap in use, and Goroutines are the figures of the program, with all nodes. RSS is
	// the memory of the process, on Linux.
	Memory, RSS uint64
	Goroutines  int
}

// sampler takes samples.
type sampler struct {
	db                 *database
	events             *ledger
	meters             *meters
	began, last        time.Time
	written, delivered int
	wal                int64 // at the last sample
	samples            []Sample
	tell               func(Sample)
}

// begin begins the time of the first sample.
func (s *sampler) begin(ctx context.Context) error {
	var now Sample
	err := s.db.measure(ctx, &now)
	s.began, s.wal = time.Now(), now.WAL
	s.last = s.began
	return err
}

// watch takes samples until the time is over or ended is closed, and holds a transaction open
// meanwhile.
func (s *sampler) watch(ctx context.Context, o Options, ended <-chan struct{}) (err error) {
	h := hold{from: o.Time / 6, until: o.Time/6 + o.Held}
	defer func() {
		if h.release != nil {
			_ = h.release()
		}
	}()
	ticks := time.NewTicker(o.Every)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ended:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
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
		if ended == nil && now >= o.Time {
			return nil
		}
		if err := h.step(ctx, s.db, now); err != nil {
			return err
		}
	}
}

func (s *sampler) take(ctx context.Context, held bool) (Sample, error) {
	now := time.Now()
	sum := s.events.sum()
	seconds := now.Sub(s.last).Seconds()
	sample := Sample{
		At: now.Sub(s.began).Round(time.Millisecond), Span: now.Sub(s.last).Round(time.Millisecond), Held: held,
		Written: float64(sum.written-s.written) / seconds, Delivered: float64(sum.delivered-s.delivered) / seconds,
		Hot: s.meters.hot.take(), Cold: s.meters.cold.take(), Backlog: s.meters.backlog.take(), Claims: s.meters.claims.take(),
		Pending: sum.pending(), Goroutines: runtime.NumGoroutine(), RSS: residentMemory(),
	}
	s.last, s.written, s.delivered = now, sum.written, sum.delivered
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	sample.Memory = memory.HeapInuse
	err := s.db.measure(ctx, &sample)
	sample.WAL, s.wal = sample.WAL-s.wal, sample.WAL
	return sample, err
}

// residentMemory is the memory of this process in RAM; 0 where the system has no /proc.
func residentMemory() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if fields := bytes.Fields(text); err == nil && len(fields) > 1 {
		pages, _ := strconv.ParseUint(string(fields[1]), 10, 64)
		return pages * uint64(os.Getpagesize()) //nolint:gosec // a page has a size
	}
	return 0
}
