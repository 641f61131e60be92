package logread

import (
	"context"
	"log/slog"
	"time"
)

// Loop is how a reader follows its log.
type Loop struct {
	// Follow connects and follows the log until something fails.
	Follow func(ctx context.Context) error
	// Final reports whether trying again is no use.
	Final func(err error) bool
	// InUse reports whether another process follows the log.
	InUse func(err error) bool
	// Name names the reader in the log lines.
	Name slog.Attr
}

const (
	// healthy is how long a connection must last so that the waits begin with the first again.
	healthy = time.Minute
	// standbyWait is the wait of a process that waits for another process to leave the log.
	standbyWait = 2 * time.Second
)

// Run follows the log until ctx ends, and returns nil then, or until an error is final.
func (p *Publisher) Run(ctx context.Context, loop Loop) error {
	retry, reported := firstBackoff, false
	for {
		began := time.Now()
		err := loop.Follow(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case loop.Final(err):
			return err
		case loop.InUse(err):
			if !reported {
				p.Logger.InfoContext(ctx, "cdc: another process follows the log; this process waits", loop.Name)
			}
			reported, retry = true, firstBackoff
			_ = Sleep(ctx, standbyWait)
			continue
		}
		if time.Since(began) >= healthy {
			retry = firstBackoff
		}
		reported = false
		p.Logger.ErrorContext(ctx, "cdc: reading the log failed; the reader begins again at the confirmed position", loop.Name, "error", err, "again_in", retry.String())
		_ = Sleep(ctx, retry)
		retry = min(2*retry, p.MaxBackoff)
	}
}
