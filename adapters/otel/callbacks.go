package outboxotel

import (
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/outboxkit/outbox-go/internal/tablestats"
	"github.com/outboxkit/outbox-go/outbox"
)

// callbacks are registered with the meter until the metrics are closed.
type callbacks struct {
	mu            sync.Mutex
	closed        bool
	err           error              // of closing
	reader        *tablestats.Reader // nil unless WatchTable was called
	registrations []metric.Registration
}

// add registers a callback, unless the metrics are closed.
func (c *callbacks) add(register func() (metric.Registration, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return outbox.ErrClosed
	}
	registration, err := register()
	if err == nil {
		c.registrations = append(c.registrations, registration)
	}
	return err
}

// close ends a running read first: a collection that waits for it would delay
// unregistering the callbacks.
func (c *callbacks) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.err
	}
	c.closed = true
	if c.reader != nil {
		c.err = c.reader.Close()
	}
	for _, registration := range c.registrations {
		c.err = errors.Join(c.err, registration.Unregister())
	}
	if c.err != nil {
		c.err = fmt.Errorf("outboxotel: closing the metrics: %w", c.err)
	}
	return c.err
}
