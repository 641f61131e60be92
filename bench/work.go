package main

import (
	"context"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/internal/testdb"
)

// works are all that is measured, in the order of the document.
func works() []work {
	return []work{
		writeWork(), manyWork(), doneWork(), drainWork(), latencyWork(), remoteWork(),
		burstWork(), flatWork(), precisionWork(), memoryWork(), costWork(),
	}
}

// work is one kind of work, a table in the document. It has a column for each
// variant and figure.
type work struct {
	name    string // for -run
	title   string
	note    string // what is measured
	figures []figure
	on      []testdb.Kind
	// rounds is the most rounds; zero: as many as asked for.
	rounds int
	// ratioToFirst compares a contender with itself in the first variant, not with
	// the limit.
	ratioToFirst bool
	variants     []variant
}

type figure struct {
	Name string `json:"name"` // empty when there is one
	Unit string `json:"unit"`
	// Higher is better.
	Higher bool `json:"higher"`
}

// variant is one way to do the work. Measure gets a new system and returns a value
// for each figure.
type variant struct {
	name string
	on   []testdb.Kind // nil: the work's
	// full leaves it out of -quick.
	full    bool
	measure func(ctx context.Context, s *sample) ([]float64, error)
}

func (w work) supports(v variant, kind testdb.Kind) bool {
	return slices.Contains(w.on, kind) && (v.on == nil || slices.Contains(v.on, kind))
}

// sample is one measurement: one contender, one variant, one round.
type sample struct {
	system
	db    *database
	scale float64       // of every size
	slice time.Duration // how long a work runs that has no end of its own
}

// size is how many events or rows a work takes.
func (s *sample) size(n int) int { return max(int(float64(n)*s.scale), min(n, 1)) }

// deliver starts the delivery.
func (s *sample) deliver(ctx context.Context, d delivery) (stop func() error, err error) {
	return s.system.(deliverer).Deliver(ctx, d)
}

var (
	perSecond    = []figure{{Unit: "events/s", Higher: true}}
	postgresOnly = []testdb.Kind{testdb.Postgres}
	servers      = []testdb.Kind{testdb.Postgres, testdb.MySQL}
)
