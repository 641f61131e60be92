package chaos

import (
	"context"
	"time"

	"github.com/outboxkit/outbox-go/proof/checker"
)

// stall is a fault that no plan has: the machine is so busy that for a second the
// database does not answer, or no process goes on.
const stall = "stall"

// slowest is how long an unhindered statement may take.
const slowest = time.Second

// watch looks for stalls, until ctx ends. A lease may be lost to a stall. The stalls are recorded
// as faults of the server, so that a busy machine does not count against the outbox. watch also
// counts the stalls, so that they are seen.
func (r *run) watch(ctx context.Context) {
	for ctx.Err() == nil {
		began, harming := time.Now(), r.harming.Load()
		_, _ = r.base.db.ExecContext(ctx, "UPDATE fault_watch SET n = n + 1")
		wait(ctx, 100*time.Millisecond)
		if now := time.Now(); now.Sub(began) > slowest && ctx.Err() == nil {
			r.processes.Fault(checker.Server, "", began, now)
			if !harming && !r.harming.Load() {
				r.count(stall)
			}
		}
	}
}
