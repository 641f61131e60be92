package outboxfx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/outboxkit/outbox-go/outbox"
)

// drain is how the outboxes of an app stop: all at once, since fx's stop timeout
// is for all of them, and one after another the last ones would find none of it
// left and keep their leases.
type drain struct {
	mu       sync.Mutex
	outboxes []member
}

// member is an outbox of the app.
type member struct {
	name   string
	outbox *outbox.Outbox
}

// join adds an outbox. The first one's hook, which comes last when fx stops in
// reverse, closes them all: everything that any listener depends on was made
// before it, since the listeners of all outboxes are, and stops after it.
func (d *drain) join(name string, o *outbox.Outbox) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outboxes = append(d.outboxes, member{name, o})
	return len(d.outboxes) == 1
}

func (d *drain) close(ctx context.Context) error {
	d.mu.Lock()
	outboxes := slices.Clone(d.outboxes)
	d.mu.Unlock()
	errs := make([]error, len(outboxes))
	var closing sync.WaitGroup
	for i, m := range outboxes {
		closing.Go(func() {
			if err := m.outbox.Close(ctx); err != nil {
				errs[i] = fmt.Errorf("outboxfx: closing %s: %w", describe(m.name), err)
			}
		})
	}
	closing.Wait()
	return errors.Join(errs...)
}

// drainOf is the drain that the outboxes of an app share: that of the outbox
// whose name comes first, since the order of a group is random.
func drainOf(uses []tableUse) *drain {
	return slices.MinFunc(uses, func(a, b tableUse) int { return cmp.Compare(a.outboxName, b.outboxName) }).drain
}
