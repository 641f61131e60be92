package main

import (
	"context"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// contenders are all contenders of the comparison. To add a contender, write a file with the
// contender and the contender's system, and name it here.
func contenders() []contender {
	return slices.Concat(
		bareContenders(),      // the limit: bare statements, no library
		leaseContenders(),     // the throughput that leases over batches instead of rows would allow
		handContenders(),      // INSERTs by hand through an ORM, on the outbox's own table
		outboxContenders(),    // this library: through sqltx, and in all modes
		outboxORMContenders(), // this library through bun and GORM; add an adapter there
		pgxContenders(),       // by hand and this library, without database/sql
		riverContenders(),
		watermillContenders(),
	)
}

// contender is a way to write events in a transaction, and perhaps to deliver them.
type contender struct {
	name string
	// limit: others are compared with it.
	limit bool
	// against names the contender that this contender is compared with, if that contender takes
	// part. Otherwise this contender is compared with the best limit of the column.
	against string
	// peer: another library. In -quick a failure of a peer is tried again, since the peer may wait
	// for transactions of other programs on the server.
	peer bool
	// on are the databases that the contender supports.
	on []testdb.Kind
	// works are the works that the contender takes part in: "drain", or a single variant of a work:
	// "drain/2 nodes".
	works []string
	// open makes the tables and connects. The database is empty except for the table orders, and is
	// dropped after the sample.
	open func(ctx context.Context, db *database) (system, error)
}

// stopped lets stop take a minute, also when the sample's time is over.
func stopped(ctx context.Context, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return stop(ctx)
}

func (c contender) takesPart(work, variant string) bool {
	return slices.Contains(c.works, work) || slices.Contains(c.works, work+"/"+variant)
}

// system is a contender at work on a database. Events are numbered. Write and Pending are called
// from many goroutines at once, the rest from a single goroutine.
type system interface {
	// Write runs a single transaction: a row in orders, and the n events from first on.
	Write(ctx context.Context, first, n int) error
	// Pending counts the events that are not delivered, or whose delivery is not
	// stored yet.
	Pending(ctx context.Context) (int, error)
	// Deliver starts to deliver. stop stores all outcomes, then returns.
	Deliver(ctx context.Context, d delivery) (stop func() error, err error)
	// Close closes every connection. Closing twice is harmless.
	Close() error
}

type delivery struct {
	// listen gets the number of each event, from as many goroutines as the
	// contender wants. After an error the event is due again in retryDelay. Nil
	// is the sample's own listener, which does nothing but count.
	listen func(n int) error
	// apart stands for a separate process: the delivery has separate connections, and does not see
	// the commits of others.
	apart bool
}

// delayer is a system that writes events which are due later.
type delayer interface {
	WriteDue(ctx context.Context, first int, due []time.Time) error
}

var everywhere = []testdb.Kind{testdb.Postgres, testdb.MySQL, testdb.SQLite}
