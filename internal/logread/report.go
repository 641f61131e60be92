package logread

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// How a reader reports itself. The times are those of the outbox's own reports.
const (
	reportEvery    = 10 * time.Second
	reportSoon     = time.Second // the first reports, until the whole log was published
	firstReports   = 10
	reportFor      = 3 * reportEvery
	reportPatience = 2 * time.Second
)

// modeLog is the mode of a reader's report.
const modeLog = "log"

// Report is how the process that follows a log reports itself to the outboxes' tables, so that the dashboard, the
// verdict and the doctor know it.
type Report struct {
	// Owner names the reader. The next process that follows the log replaces the report.
	Owner string
	DB    outbox.DB
	// Stores are the stores of the tables.
	Stores []outbox.Store
	// Lag reads how far the reader is behind.
	Lag func(ctx context.Context) outbox.LogLag
	// Whole is when the reader last had published the whole log.
	Whole *Moment
	// Name names the reader in the log lines.
	Name slog.Attr
}

// Moment is a time that several goroutines read and set.
type Moment struct{ micros atomic.Int64 }

// Now sets the moment.
func (m *Moment) Now() { m.micros.Store(time.Now().UnixMicro()) }

func (m *Moment) time() time.Time {
	if at := m.micros.Load(); at != 0 {
		return time.UnixMicro(at).UTC()
	}
	return time.Time{}
}

// Report begins to report the reader, and returns a function that ends it and waits. If ctx has ended by
// then, the report is withdrawn; else it expires, or the next connection goes on with it.
func (p *Publisher) Report(ctx context.Context, r Report) (end func()) {
	reporting, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.report(reporting, &r)
		if ctx.Err() == nil {
			return
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportPatience)
		defer cancel()
		for _, store := range r.Stores {
			_ = store.Withdraw(last, r.DB, r.Owner) // else it expires
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (p *Publisher) report(ctx context.Context, r *Report) {
	told := false
	for n := 0; ; n++ {
		wait := reportEvery
		if n < firstReports && r.Whole.time().IsZero() {
			wait = reportSoon
		}
		if err := p.announce(ctx, r); err != nil && ctx.Err() == nil && !told {
			told = true
			p.Logger.WarnContext(ctx, "cdc: the reader cannot report itself; the dashboard and the doctor do not show it", r.Name, "error", err)
		}
		if Sleep(ctx, wait) != nil {
			return
		}
	}
}

func (p *Publisher) announce(ctx context.Context, r *Report) error {
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	lag := r.Lag(ctx)
	node := outbox.Node{Owner: r.Owner, Mode: modeLog, Started: p.started, LastPoll: r.Whole.time(), Log: &lag, Totals: p.counts.totals()}
	for _, store := range r.Stores {
		if err := store.Announce(ctx, r.DB, node, reportFor); err != nil {
			return err
		}
	}
	return nil
}

// counts are the events that a reader published, and the attempts that failed, since it was made.
type counts struct{ delivered, failed atomic.Int64 }

func (c *counts) totals() *outbox.Totals {
	return &outbox.Totals{Delivered: c.delivered.Load(), Failed: c.failed.Load()}
}
