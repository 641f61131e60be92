package outbox

import "time"

// Dispatcher is being built; this is its seam with the writer.
type Dispatcher struct{}

func (d *Dispatcher) reserve(envs []Envelope) string                                              { return "" }
func (d *Dispatcher) unreserve(envs []Envelope)                                                   {}
func (d *Dispatcher) release(envs []Envelope, owner string)                                       {}
func (d *Dispatcher) committed(envs []Envelope, owner string, inserted time.Time, poller *Poller) {}

// Poller is being built.
type Poller struct{}

// LookAgain looks again.
func (p *Poller) LookAgain() {}

// DueAt wakes.
func (p *Poller) DueAt(t time.Time) {}
