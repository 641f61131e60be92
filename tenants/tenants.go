// Package tenants runs an outbox for each of many databases, or schemas, that come and go while the process
// runs, such as the databases of tenants.
//
// A [Manager] opens the database of a tenant, runs the outbox until the tenant is removed, and tries again
// after a failure. The tenants do not hold up each other: a database that is away concerns one tenant.
package tenants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/internal/outboxname"
	"github.com/outboxkit/outbox-go/outbox"
)

// Config configures a [Manager]. Open is required.
type Config[T any] struct {
	// Open opens the database of a tenant and makes the outbox, with listeners and not started. Open is
	// called for several tenants at once, and again for the same tenant after a failure. When Open returns an
	// error, Open leaves nothing open. To bound and count all tenants together, give each outbox the same
	// [outbox.SharedWorkers] and a [Metrics.ForTenant].
	Open func(ctx context.Context, tenant string) (Tenant[T], error)
	// Opening is how many tenants are opened at once, so that a start with many tenants opens few connections
	// at a time. Defaults to 8.
	Opening int
	// Max is how many tenants there may be, including tenants that are still closing. Defaults to 1,000.
	Max int
	// OpenTimeout bounds a call of Open. Defaults to 30 s.
	OpenTimeout time.Duration
	// MaxBackoff caps the waits before a tenant is opened again. The waits begin with a second and double.
	// Defaults to a minute.
	MaxBackoff time.Duration
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Defaults of [Config].
const (
	DefaultOpening     = 8
	DefaultMax         = 1_000
	DefaultOpenTimeout = 30 * time.Second
	DefaultMaxBackoff  = time.Minute
)

// firstBackoff is the first wait before a tenant is opened again.
const firstBackoff = time.Second

// Tenant is a tenant that Open has opened.
type Tenant[T any] struct {
	// Outbox is required. The manager starts and closes it.
	Outbox *outbox.Outbox
	// Value is for [Manager.Use], such as the adapter with which the service writes.
	Value T
	// Close is called after the outbox has closed, for example to close the pool. Defaults to nothing.
	Close func() error
}

// ErrUnknown says that there is no such tenant: it was never set, or it was removed.
var ErrUnknown = errors.New("there is no such tenant")

// Manager runs the outboxes of tenants. Make a Manager with [New]. It is safe for concurrent use.
type Manager[T any] struct {
	cfg     Config[T]
	opening chan struct{} // holds a token for each tenant that is being opened

	mu      sync.Mutex
	closed  bool
	tenants map[string]*tenant[T]
	leaving map[string]*tenant[T] // were removed, and are not closed yet; the last tenant of each name
}

// New makes a manager without tenants. The error joins an [outbox.FieldError] for each field that is wrong.
func New[T any](cfg Config[T]) (*Manager[T], error) {
	cfg.Opening, cfg.Max = cmp.Or(cfg.Opening, DefaultOpening), cmp.Or(cfg.Max, DefaultMax)
	cfg.OpenTimeout, cfg.MaxBackoff = cmp.Or(cfg.OpenTimeout, DefaultOpenTimeout), cmp.Or(cfg.MaxBackoff, DefaultMaxBackoff)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	var errs []error
	bad := func(field, problem string, args ...any) {
		errs = append(errs, &outbox.FieldError{Field: "tenants.Config." + field, Problem: fmt.Sprintf(problem, args...)})
	}
	if cfg.Open == nil {
		bad("Open", "is nil; set a function that opens the database of a tenant and makes its outbox")
	}
	if cfg.Opening < 0 {
		bad("Opening", "is %d; it must be positive, or zero for %d", cfg.Opening, DefaultOpening)
	}
	if cfg.Max < 0 {
		bad("Max", "is %d; it must be positive, or zero for %d", cfg.Max, DefaultMax)
	}
	if cfg.OpenTimeout < 0 {
		bad("OpenTimeout", "is %s; it must be positive, or zero for %s", cfg.OpenTimeout, DefaultOpenTimeout)
	}
	if cfg.MaxBackoff < firstBackoff {
		bad("MaxBackoff", "is %s; it must be at least %s, or zero for %s", cfg.MaxBackoff, firstBackoff, DefaultMaxBackoff)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Manager[T]{
		cfg: cfg, opening: make(chan struct{}, cfg.Opening), tenants: map[string]*tenant[T]{}, leaving: map[string]*tenant[T]{},
	}, nil
}

// Set makes these the tenants. Set begins to open the new tenants, and does not wait for them. Set closes
// the tenants that are not in the list, and waits until they are closed, or until ctx ends; they close in
// any case. Set fails before it changes anything if a name is not valid, with an [outbox.FieldError], and if
// the manager is closed, with [outbox.ErrClosed]. A name has letters, digits, hyphens, underscores and
// dots, at most 64, and begins with a letter or a digit.
func (m *Manager[T]) Set(ctx context.Context, names ...string) error {
	wanted := map[string]bool{}
	for _, name := range names {
		if !outboxname.IsValid(name) {
			return &outbox.FieldError{Field: "tenants.Manager.Set", Problem: fmt.Sprintf(
				"got the name %.80q (%d bytes); %s", name, len(name), outboxname.Rule)}
		}
		wanted[name] = true
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return fmt.Errorf("tenants: %w", outbox.ErrClosed)
	}
	closing := map[string]bool{}
	for name := range m.leaving {
		closing[name] = !wanted[name]
	}
	for name := range m.tenants {
		closing[name] = !wanted[name]
	}
	maps.DeleteFunc(closing, func(_ string, is bool) bool { return !is })
	if n := len(wanted) + len(closing); n > m.cfg.Max {
		m.mu.Unlock()
		return &outbox.FieldError{Field: "tenants.Manager.Set", Problem: fmt.Sprintf(
			"got %d tenants, and %d more are closing; Config.Max is %d", len(wanted), len(closing), m.cfg.Max)}
	}
	var ended []*tenant[T]
	for name, t := range m.tenants {
		if !wanted[name] {
			ended = append(ended, m.remove(name, t))
		}
	}
	for name := range wanted {
		if m.tenants[name] == nil {
			m.tenants[name] = m.begin(name)
		}
	}
	m.mu.Unlock()
	return waitFor(ctx, ended)
}

// begin begins to run a tenant, after the end of an earlier tenant of this name. m.mu is held.
func (m *Manager[T]) begin(name string) *tenant[T] {
	t := &tenant[T]{name: name, m: m, changed: make(chan struct{}), done: make(chan struct{}), before: m.leaving[name]}
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	go func() {
		defer close(t.done)
		t.run(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.leaving[name] == t {
			delete(m.leaving, name)
		}
	}()
	return t
}

// remove begins to close a tenant. m.mu is held.
func (m *Manager[T]) remove(name string, t *tenant[T]) *tenant[T] {
	delete(m.tenants, name)
	m.leaving[name] = t
	t.cancel()
	return t
}

// Close closes all tenants and waits until they are closed, or until ctx ends; they close in any case.
// Afterwards Set and Use fail with [outbox.ErrClosed].
func (m *Manager[T]) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	for name, t := range m.tenants {
		m.remove(name, t)
	}
	ended := slices.Collect(maps.Values(m.leaving))
	m.mu.Unlock()
	return waitFor(ctx, ended)
}

// waitFor waits for tenants to close, and joins their errors.
func waitFor[T any](ctx context.Context, ended []*tenant[T]) error {
	var errs []error
	left := 0
	for _, t := range ended {
		select {
		case <-t.done:
			errs = append(errs, t.closeErr)
			continue
		default:
		}
		select {
		case <-t.done:
			errs = append(errs, t.closeErr)
		case <-ctx.Done():
			left++
		}
	}
	if left > 0 {
		errs = append(errs, fmt.Errorf("tenants: %d tenants are still closing: %w", left, ctx.Err()))
	}
	return errors.Join(errs...)
}

// Use calls do with the Value of a tenant, and returns the error of do. The tenant is not closed before do
// returns. While the tenant is being opened, Use waits until ctx ends. Use does not call do, and fails, if
// the last attempt to open the tenant failed, with the error of that attempt; if there is no such tenant, with
// [ErrUnknown]; and after Close, with [outbox.ErrClosed].
func (m *Manager[T]) Use(ctx context.Context, name string, do func(value T) error) error {
	m.mu.Lock()
	t, closed := m.tenants[name], m.closed
	m.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("tenants: %w", outbox.ErrClosed)
	case t == nil:
		return fmt.Errorf("tenants: %.80q: %w", name, ErrUnknown)
	}
	value, end, err := t.use(ctx)
	if err != nil {
		return err
	}
	defer end()
	return do(value)
}

// Outboxes are the outboxes that run, by the names of their tenants. A tenant that is being opened or closed
// is left out.
func (m *Manager[T]) Outboxes() map[string]*outbox.Outbox {
	list := map[string]*outbox.Outbox{}
	for _, t := range m.all() {
		if ob, _ := t.state(); ob != nil {
			list[t.name] = ob
		}
	}
	return list
}

// Failing are the tenants that do not run because the last attempt to open them failed, with the error.
func (m *Manager[T]) Failing() map[string]error {
	list := map[string]error{}
	for _, t := range m.all() {
		if _, err := t.state(); err != nil {
			list[t.name] = err
		}
	}
	return list
}

func (m *Manager[T]) all() []*tenant[T] {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.tenants))
}
