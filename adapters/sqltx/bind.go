package sqltx

import "context"

// bind returns the context for a statement: within a transaction the context ends with the
// transaction's context as well as with ctx. The driver need not watch both, as lib/pq does by
// itself. done frees the resources of the returned context.
func (c *conn) bind(ctx context.Context) (bound context.Context, done release) {
	if c.tx == nil {
		return ctx, nil
	}
	outer := c.tx.ctx
	switch outer.Done() {
	case nil, ctx.Done():
		return ctx, nil
	}
	if ctx == context.Background() {
		return outer, nil // such as for tx.Exec
	}
	if ctx.Done() == nil {
		return valued{outer, ctx}, nil
	}
	var cancel context.CancelFunc
	if deadline, ok := outer.Deadline(); ok { // pgdriver looks only at the deadline
		bound, cancel = context.WithDeadline(ctx, deadline)
	} else {
		bound, cancel = context.WithCancel(ctx)
	}
	stop := context.AfterFunc(outer, cancel)
	return bound, func() {
		stop()
		cancel()
	}
}

// release frees the resources of a context. It may be nil.
type release func()

func (r release) call() {
	if r != nil {
		r()
	}
}

// valued is a context with the values of another context, which has no end.
type valued struct {
	context.Context
	values context.Context
}

func (v valued) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key)
}
