// Package txretry runs a transaction again that the database refused because of another transaction:
// a deadlock, a serialization failure, a lock that did not come free. The first transaction was rolled
// back whole, so that nothing has happened yet, and the second usually succeeds.
//
//	err := txretry.Do(ctx, 3, func(ctx context.Context) error {
//		return outbox.InTx(ctx, adapter, func(ctx context.Context) error {
//			... // reads and writes, and events
//		})
//	})
//
// [Do] goes around whatever begins and ends the transaction: InTx, RunInTx of bun, Transaction of GORM,
// BeginFunc of pgx. The function runs from the beginning each time. Effects outside of the transaction,
// such as a mail, happen again: AfterCommit of the adapters is the place for them, and [Stop] forbids
// another attempt.
//
// Web services need no such code: set the field Retries of the Transaction middleware's config.
package txretry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// attempt is a call of the function of [Do].
type attempt struct {
	around  *attempt // of another Do
	number  int
	last    bool
	stopped atomic.Bool
	over    atomic.Bool           // it has committed
	inner   atomic.Pointer[error] // see Conflict
}

type attemptKey struct{}

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// Do calls fn, and calls fn again as long as fn returns an error of [IsConflict], at most retries times.
// fn begins and ends a single transaction, with the context that it gets. Do returns the last error of
// fn. Before each new attempt, Do waits a random time without a transaction: up to 10 ms
// before the first, twice as long before each next, and up to a second at most. When ctx ends meanwhile,
// Do returns the error of the last attempt.
//
// Within a transaction, or within another Do, only the code around can run everything again: Do calls fn
// once then. A negative number of retries is an [outbox.FieldError].
func Do(ctx context.Context, retries int, fn func(ctx context.Context) error) error {
	if retries < 0 {
		return &outbox.FieldError{Field: "txretry.Do retries", Problem: fmt.Sprintf("is %d; it must be positive, or zero for a single attempt", retries)}
	}
	first, around := 1, attemptOf(ctx)
	if around != nil && around.over.Load() { // in a callback after the commit
		around = nil
	}
	if scope, found := outbox.InnermostScope(ctx); around != nil || found && scope.Active() {
		retries = 0
		if around != nil {
			first = around.number
		}
	}
	for n := 0; ; n++ {
		a := &attempt{around: around, number: first + n, last: n == retries}
		err := fn(context.WithValue(ctx, attemptKey{}, a))
		if a.last || a.stopped.Load() || !IsConflict(err) || !pause(ctx, n) {
			if IsConflict(err) {
				around.note(err)
			}
			return err
		}
	}
}

// pause waits before another attempt, unless ctx ends.
func pause(ctx context.Context, n int) bool {
	timer := time.NewTimer(rand.N(min(firstPause<<min(n, 10), longestPause)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// IsConflict reports whether err says that the database refused a statement or a COMMIT because of
// another transaction, so that the transaction may succeed when it runs again:
// PostgreSQL's 40001 and 40P01; MySQL's and MariaDB's 1213, 1205, 1020, and 3101 and 1180 of group
// replication; TiDB's 8002, 8022, 8028 and 9007; SQLite's BUSY and LOCKED. An error that is
// [outbox.ErrOutcomeUnknown] is no conflict, because the transaction may have committed, and neither is
// the error of NOWAIT.
func IsConflict(err error) bool {
	return sqlerr.IsConflict(err) && !errors.Is(err, outbox.ErrOutcomeUnknown)
}

// Attempt is the number of the attempt, from 1 on, also outside of [Do].
func Attempt(ctx context.Context) int {
	if a := attemptOf(ctx); a != nil {
		return a.number
	}
	return 1
}

// Last reports whether no other attempt follows, whatever the function of [Do] returns.
func Last(ctx context.Context) bool {
	a := attemptOf(ctx)
	return a == nil || a.last || a.stopped.Load()
}

// Stop forbids another attempt, for a function whose next step must not happen twice. Stop is
// safe for concurrent use, and does nothing outside of [Do].
func Stop(ctx context.Context) {
	for a := attemptOf(ctx); a != nil; a = a.around {
		a.stopped.Store(true)
	}
}
