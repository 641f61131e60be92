package outboxfx

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// gate is a registerer that keeps collectors back until the outbox starts. An
// app may be made and not started, and then fx tells nobody.
type gate struct {
	mu      sync.Mutex
	to      prometheus.Registerer // nil while closed
	waiting []prometheus.Collector
}

// Register implements [prometheus.Registerer].
func (g *gate) Register(c prometheus.Collector) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.to != nil {
		return g.to.Register(c)
	}
	g.waiting = append(g.waiting, c)
	return nil
}

// MustRegister implements [prometheus.Registerer].
func (g *gate) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		if err := g.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements [prometheus.Registerer]. Behind a closed gate it must not
// reach the registry, which may hold another outbox's of the same names.
func (g *gate) Unregister(c prometheus.Collector) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.to != nil {
		return g.to.Unregister(c)
	}
	held := len(g.waiting)
	g.waiting = slices.DeleteFunc(g.waiting, func(w prometheus.Collector) bool { return w == c })
	return len(g.waiting) < held
}

// open lets all that waits through, or none.
func (g *gate) open(to prometheus.Registerer) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.waiting {
		if err := to.Register(c); err != nil {
			for _, through := range g.waiting[:i] {
				to.Unregister(through)
			}
			return err
		}
	}
	g.to, g.waiting = to, nil
	return nil
}

// rehearsal registers what collectors describe, without what they collect: to
// find out whether their names are free while nobody is to see any figures. All
// that is left with a registry afterwards is which labels a name has.
type rehearsal struct{ prometheus.Registerer }

func (r rehearsal) Register(c prometheus.Collector) error { return r.Registerer.Register(silent{c}) }

func (r rehearsal) Unregister(c prometheus.Collector) bool {
	return r.Registerer.Unregister(silent{c})
}

// silent describes and collects nothing.
type silent struct{ prometheus.Collector }

// Collect implements [prometheus.Collector].
func (silent) Collect(chan<- prometheus.Metric) {}
