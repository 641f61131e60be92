package outbox

import (
	"context"
	"time"
)

// Node is a process that delivers from the table, or only writes to it, as operators see it.
type Node struct {
	// Owner is its name: that of its leases, or of its hold.
	Owner string
	// Mode is the name of its mode, such as "multi-node".
	Mode string
	// Started is when it started, and LastPoll when its poller last got through, by the
	// node's clock.
	Started, LastPoll time.Time
	// Problem says why its report cannot be read; empty: it can. Such a node has only Owner,
	// Live, Holds and its leases.
	Problem string
	// HotDepth and ColdDepth are the events in its queues.
	HotDepth, ColdDepth int
	// SeenAt is when it last reported, by the database's clock. A node reports every ten
	// seconds, and Live says that it has not missed three reports. A node that closed is
	// not listed; one that died is listed for an hour.
	SeenAt time.Time
	Live   bool
	// Holds says that it holds the table, in [SingleNode] or [Ordered].
	Holds bool
	// Leases is how many leases it has. They are counted in the table if no more than
	// SearchLimit rows are due. If more are due, leases may be behind those that were read, as
	// behind the events of a paused kind: Leases is then as many as were counted, or as the
	// node last reported, if that is more. OldestLease is when the oldest one that was counted
	// began; zero: none was.
	Leases      int
	OldestLease time.Time
}

// Delivers reports whether the node is known to deliver, or to be a standby for that: its
// mode is not [WriterOnly].
func (n *Node) Delivers() bool { return n.Mode != "" && n.Mode != modeName(WriterOnly{}) }

// Nodes lists the processes that deliver from the table or write to it, by owner. Those that only have
// leases, because an older version does not report, have only Owner, Leases and OldestLease.
func (o *Outbox) Nodes(ctx context.Context) ([]Node, error) {
	return o.store.Nodes(ctx, o.db)
}
