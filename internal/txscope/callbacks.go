package txscope

import (
	"context"
	"sync"
)

// callbacks runs the users' callbacks of a transaction, one after the other. A callback that ran
// within the driver's COMMIT or ROLLBACK TO would wait forever for a connection of a pool that has
// only a single connection.
type callbacks struct {
	mu      sync.Mutex
	ctx     context.Context
	waiting []Callback
	running bool          // a goroutine runs the callbacks
	held    bool          // release will run the callbacks
	over    bool          // the transaction has ended: no more callbacks will come
	settled chan struct{} // release waits for settled; nil without a waiter
}

// add queues callbacks, which get ctx without its end. The last call says that
// the transaction is over.
func (c *callbacks) add(ctx context.Context, more []Callback, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(more) > 0 {
		c.ctx = context.WithoutCancel(ctx)
		c.waiting = append(c.waiting, more...)
	}
	c.over = c.over || over
	if len(c.waiting) > 0 && !c.running && !c.held {
		c.running = true
		go c.run()
	}
	c.settle()
}

// hold makes the callbacks wait for release.
func (c *callbacks) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = true
}

// release runs the waiting callbacks and returns when the transaction is over and all callbacks
// have run, whichever goroutine runs them.
func (c *callbacks) release() {
	c.mu.Lock()
	c.held = false
	mine := !c.running && len(c.waiting) > 0
	c.running = c.running || mine
	c.mu.Unlock()
	if mine {
		c.run()
	}
	c.mu.Lock()
	var settled chan struct{}
	if !c.over || c.running {
		if c.settled == nil {
			c.settled = make(chan struct{})
		}
		settled = c.settled
	}
	c.mu.Unlock()
	if settled != nil {
		<-settled
	}
}

func (c *callbacks) settle() {
	if c.over && !c.running && !c.held && c.settled != nil {
		close(c.settled)
		c.settled = nil
	}
}

func (c *callbacks) run() {
	finished := false
	defer func() {
		if !finished { // a callback ended the goroutine
			go c.run()
		}
	}()
	for {
		c.mu.Lock()
		if len(c.waiting) == 0 {
			c.waiting, c.running, finished = nil, false, true
			c.settle()
			c.mu.Unlock()
			return
		}
		ctx, fn := c.ctx, c.waiting[0]
		c.waiting = c.waiting[1:]
		c.mu.Unlock()
		shield(func() { fn(ctx) })
	}
}
