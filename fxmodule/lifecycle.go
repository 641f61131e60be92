package outboxfx

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/outbox"
)

// schemaCreator is a store that can create its table; those of sqlstore can.
type schemaCreator interface {
	CreateSchema(ctx context.Context, db outbox.DB) error
}

// run registers the listeners and ties the outbox to the app's life. It is an
// Invoke, so the hook comes after those of everything that the listeners were
// made of, the database included: fx stops in reverse, and the outbox drains
// while they still work, together with the app's others.
func (m *module) run(
	lc fx.Lifecycle, o *outbox.Outbox, p parts, registerer prometheus.Registerer,
	listeners []contribution[[]outbox.Binding], interceptors []contribution[outbox.Interceptor],
	hooks []contribution[outbox.WriterHook], known []moduleName, tables []tableUse,
) error {
	if err := sharedTables(tables); err != nil {
		return err
	}
	unknown := unknownTargets(listeners, known)
	unknown = append(unknown, unknownTargets(interceptors, known)...)
	unknown = append(unknown, unknownTargets(hooks, known)...)
	if err := errors.Join(unknown...); err != nil {
		return err
	}
	if err := register(o, m.name, listeners); err != nil {
		return err
	}
	if err := m.scrapes(p, registerer); err != nil {
		return err
	}
	hook := fx.Hook{
		OnStart: func(ctx context.Context) error {
			err := m.start(ctx, o, p)
			if err == nil {
				return nil
			}
			// fx does not stop what did not start. A start may have closed it already.
			if closing := o.Close(ctx); !errors.Is(err, closing) {
				err = errors.Join(err, closing)
			}
			return err
		},
	}
	if all := drainOf(tables); all.join(m.name, o) {
		hook.OnStop = all.close
	}
	lc.Append(hook)
	return nil
}

func (m *module) start(ctx context.Context, o *outbox.Outbox, p parts) error {
	if p.config.CreateSchema {
		// conflicts saw to it that the store can.
		if err := p.store.(schemaCreator).CreateSchema(ctx, p.db); err != nil {
			return fmt.Errorf("outboxfx: creating the table of %s: %w", describe(m.name), err)
		}
	}
	if err := beginMetrics(p.metrics, o); err != nil {
		return fmt.Errorf("outboxfx: starting the metrics of %s: %w", describe(m.name), err)
	}
	if err := o.Start(ctx); err != nil {
		return fmt.Errorf("outboxfx: starting %s: %w", describe(m.name), err)
	}
	return nil
}
