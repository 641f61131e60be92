package outboxfx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/outbox"
)

// schemaCreator is a store that can create its table; the stores of sqlstore can.
type schemaCreator interface {
	CreateSchema(ctx context.Context, db outbox.DB) error
}

// tableWatcher is a metrics receiver that also reads the table, such as the receivers of outboxprom
// and outboxotel.
type tableWatcher interface {
	WatchTable(source interface {
		Stats(ctx context.Context) (outbox.Stats, error)
	}) error
}

type running struct {
	fx.In
	Lifecycle fx.Lifecycle
	Outboxes  []built                          `group:"outboxfx"`
	Listeners []contribution[[]outbox.Binding] `group:"outboxfx"`
}

// run registers the listeners and ties the outboxes to the app's life. Each module invokes run, and
// the first call is for all modules: fx's stop timeout is for the whole app, so all outboxes must
// drain at the same time. The hook is appended after the hooks of everything that the listeners
// depend on, including the databases. fx stops in reverse order, so the outboxes drain while the
// listeners' dependencies still work.
func run(in running) (err error) {
	all := slices.SortedFunc(slices.Values(in.Outboxes), func(a, b built) int { return cmp.Compare(a.name, b.name) })
	all[0].first.Do(func() {
		if err = sharedTable(all); err == nil {
			for _, b := range all {
				err = errors.Join(err, register(b.outbox, b.name, in.Listeners))
			}
		}
		if err != nil { // the app will not call the hook
			err = errors.Join(err, closeListeners(context.Background(), in.Listeners))
			return
		}
		in.Lifecycle.Append(fx.Hook{
			OnStart: func(ctx context.Context) error { return startAll(ctx, all, in.Listeners) },
			OnStop:  func(ctx context.Context) error { return closeAll(ctx, all, in.Listeners) },
		})
	})
	return err
}

// startAll closes the outboxes when an outbox does not start, because fx would not close them: fx
// stops only hooks that have started.
func startAll(ctx context.Context, all []built, listeners []contribution[[]outbox.Binding]) error {
	for _, b := range all {
		if err := b.start(ctx); err != nil {
			return errors.Join(fmt.Errorf("outboxfx: starting %s: %w", describe(b.name), err), closeAll(ctx, all, listeners))
		}
	}
	return nil
}

func (b built) start(ctx context.Context) error {
	if b.config.CreateSchema {
		if err := b.store.(schemaCreator).CreateSchema(ctx, b.db); err != nil { // conflicts has checked the type
			return fmt.Errorf("creating the table: %w", err)
		}
	}
	if watcher, can := b.metrics.(tableWatcher); can {
		if err := watcher.WatchTable(b.outbox); err != nil {
			return fmt.Errorf("starting the metrics: %w", err)
		}
	}
	err := b.outbox.Start(ctx)
	if settings := b.config.keyErrors(err); len(settings) > 0 { // rules of kinds without a listener
		err = nil
		for _, setting := range settings {
			err = errors.Join(err, setting)
		}
	}
	return err
}

// closeAll drains the outboxes, and then closes the publishers of their listeners.
func closeAll(ctx context.Context, all []built, listeners []contribution[[]outbox.Binding]) error {
	errs := make([]error, len(all))
	var closing sync.WaitGroup
	for i, b := range all {
		closing.Go(func() {
			if err := b.outbox.Close(ctx); err != nil {
				errs[i] = fmt.Errorf("outboxfx: closing %s: %w", describe(b.name), err)
			}
		})
	}
	closing.Wait()
	return errors.Join(append(errs, closeListeners(ctx, listeners))...)
}

// closeListeners closes the relays.
func closeListeners(ctx context.Context, all []contribution[[]outbox.Binding]) (err error) {
	for _, c := range all {
		if c.close == nil {
			continue
		}
		if failed := c.close(ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("outboxfx: closing %s: %w", c.label, failed))
		}
	}
	return err
}

// sharedTable reports two outboxes that would take each other's events: each outbox makes events
// DEAD that it has no listener for. In multi-node two outboxes may share a table.
func sharedTable(all []built) error {
	users := map[[2]any]built{} // by pool and table
	for _, b := range all {
		store, named := b.store.(interface{ Table() string })
		if !named || b.config.Mode == WriterOnly {
			continue
		}
		own := [2]any{b.db, store.Table()}
		if other, taken := users[own]; taken && (b.config.Mode != MultiNode || other.config.Mode != MultiNode) {
			return fmt.Errorf("outboxfx: %s and %s deliver from one table, %s of the same *sql.DB, and would take each other's events; give each its own database or table-name",
				describe(other.name), describe(b.name), own[1])
		}
		users[own] = b
	}
	return nil
}
