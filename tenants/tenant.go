package tenants

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// tenant runs the outbox of a tenant until it is removed.
type tenant[T any] struct {
	name   string
	m      *Manager[T]
	before *tenant[T] // of the same name, which has to close first; nil: no such tenant
	cancel context.CancelFunc
	done   chan struct{}
	// closeErr is the error with which the tenant closed; set before done is closed.
	closeErr error

	mu      sync.Mutex
	open    *Tenant[T]     // nil while the tenant does not run
	uses    sync.WaitGroup // of open; begins with mu held
	err     error          // of the last attempt to open; nil before the first one ended, and while the tenant runs
	changed chan struct{}  // closed at the next change of open or err
}

// run opens the tenant, again after each failure, and closes it when ctx ends.
func (t *tenant[T]) run(ctx context.Context) {
	if t.before != nil {
		<-t.before.done
		t.before = nil
	}
	for retry := firstBackoff; ctx.Err() == nil; retry = min(2*retry, t.m.cfg.MaxBackoff) {
		opened, err := t.start(ctx)
		switch {
		case err == nil:
			t.become(&opened, nil)
			<-ctx.Done()
			t.become(nil, nil)
			// The context has ended; Close has bounds without it.
			err := opened.Outbox.Close(context.WithoutCancel(ctx))
			t.uses.Wait()
			if err = errors.Join(err, opened.close()); err != nil {
				t.closeErr = fmt.Errorf("tenants: closing %s: %w", t.name, err)
			}
		case ctx.Err() != nil:
		default:
			t.become(nil, fmt.Errorf("tenants: opening %s: %w", t.name, err))
			t.m.cfg.Logger.WarnContext(ctx, "tenants: a tenant cannot be opened", "tenant", t.name, "error", err.Error(), "again_in", retry.String())
			timer := time.NewTimer(retry)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
		}
	}
}

// start opens the tenant and starts the outbox. Beside an error nothing is open.
func (t *tenant[T]) start(ctx context.Context) (opened Tenant[T], err error) {
	select {
	case t.m.opening <- struct{}{}:
	case <-ctx.Done():
		return opened, ctx.Err()
	}
	defer func() { <-t.m.opening }()
	ctx, cancel := context.WithTimeout(ctx, t.m.cfg.OpenTimeout)
	defer cancel()
	if opened, err = t.callOpen(ctx); err != nil {
		return Tenant[T]{}, err
	}
	if opened.Outbox == nil {
		err = &outbox.FieldError{Field: "tenants.Tenant.Outbox", Problem: "is nil; Config.Open must return the outbox of the tenant"}
		return Tenant[T]{}, errors.Join(err, opened.close())
	}
	if err = opened.Outbox.Start(ctx); err != nil {
		_ = opened.Outbox.Close(context.WithoutCancel(ctx)) // it did not start, and closes at once
		return Tenant[T]{}, errors.Join(err, opened.close())
	}
	return opened, nil
}

// callOpen calls Open. A panic is an error of this tenant alone.
func (t *tenant[T]) callOpen(ctx context.Context) (opened Tenant[T], err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &outbox.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return t.m.cfg.Open(ctx, t.name)
}

func (o *Tenant[T]) close() error {
	if o.Close == nil {
		return nil
	}
	return o.Close()
}

// become sets the state, and wakes each use that waits for a change.
func (t *tenant[T]) become(open *Tenant[T], err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open, t.err = open, err
	close(t.changed)
	t.changed = make(chan struct{})
}

// state is the outbox that runs, or why the tenant does not run; both nil: it is being opened or closed.
func (t *tenant[T]) state() (*outbox.Outbox, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		return nil, t.err
	}
	return t.open.Outbox, nil
}

// use waits until the tenant runs, and keeps it open until end is called.
func (t *tenant[T]) use(ctx context.Context) (value T, end func(), err error) {
	for {
		t.mu.Lock()
		if t.open != nil {
			t.uses.Add(1)
			value = t.open.Value
			t.mu.Unlock()
			return value, t.uses.Done, nil
		}
		failed, changed := t.err, t.changed
		t.mu.Unlock()
		if failed != nil {
			return value, nil, failed
		}
		select {
		case <-changed:
		case <-t.done:
			return value, nil, fmt.Errorf("tenants: %q: %w", t.name, ErrUnknown)
		case <-ctx.Done():
			return value, nil, fmt.Errorf("tenants: waiting until %s is open: %w", t.name, ctx.Err())
		}
	}
}
