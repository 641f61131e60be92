package chaos

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// draw makes the choices of a plan.
type draw struct{ *rand.Rand }

func (d draw) often(percent int) bool { return d.IntN(100) < percent }

func (d draw) between(least, most time.Duration) time.Duration {
	return (least + time.Duration(d.Int64N(int64(most-least)))).Round(time.Millisecond)
}

func one[T any](d draw, of ...T) T { return of[d.IntN(len(of))] }

// spec draws the spec of all processes.
func (d draw) spec(database string) faultrun.Spec {
	s := faultrun.Spec{
		Seed: d.Uint64(), Driver: d.driver(database), Mode: one(d, "multi", "multi", "by-key", "by-key", "single", "ordered"),
		Lease: d.between(4*time.Second, 6*time.Second), Interval: d.between(50*time.Millisecond, 500*time.Millisecond),
		Mark: one(d, 0, time.Millisecond, 50*time.Millisecond), Workers: one(d, 0, 1, 4, 16), MaxAttempts: one(d, 0, 3, 5),
		Drain: one(d, time.Second, 3*time.Second), Keys: one(d, 1, 4, 32),
		RollBack: 5, Delay: one(d, 0, 10), Fail: one(d, 0, 5, 20), Later: one(d, 0, 5), Bury: one(d, 0, 2), Slow: one(d, 0, 5*time.Millisecond, 20*time.Millisecond),
	}
	s.Writers = d.adapters(s.Driver)
	if d.often(25) {
		s.DeleteDone = true
	}
	if d.often(25) {
		s.Purge = d.between(200*time.Millisecond, time.Second)
	}
	if d.often(20) {
		// A renewal waits for a connection, and must not take longer than the lease.
		s.Connections, s.Guests, s.Lease = one(d, 1, 2), 2, 15*time.Second
	}
	if d.often(25) {
		s.Stubborn, s.Linger = 3, one(d, time.Second, 4*time.Second)
	}
	if d.often(25) {
		s.Hang, s.ListenerTimeout = 3, one(d, 0, 500*time.Millisecond)
	}
	if database == "postgres" && d.often(50) {
		s.Notify = true
	}
	if d.often(30) {
		s.Abroad = 30
	}
	if d.often(30) {
		s.Refused = true
	}
	if d.often(20) {
		s.Spoil = 3
	}
	d.ofMode(&s)
	return s
}

// ofMode draws the options that not all modes have.
func (d draw) ofMode(s *faultrun.Spec) {
	switch s.Mode {
	case "multi":
		s.Tenants = d.often(20)
		s.Limit = one(d, 0, 0, 2)
	case "single":
		s.Limit = one(d, 0, 0, 2)
	case "by-key":
		s.SkipDead, s.RunLength = d.often(50), one(d, 0, 3)
	case "ordered":
		s.Slow /= 10 // a single worker
		// A deferred event is ordered by when it becomes due. The same is true of the listeners
		// that were not called when the listener's time was over.
		s.Later, s.Hang, s.ListenerTimeout = 0, 0, 0
	}
}

// drawSeldom draws the parts of a plan that the older version of [NewSkewPlan] does not have. d is a
// draw of its own, so that the rest of the plan is the same.
func (p *Plan) drawSeldom(d draw) {
	p.Spec.Unique = one(d, 0, 10, 30)
	p.Spec.Seldom = one(d, 5, 15)
	p.Spec.Expires, p.Spec.DropExpired = one(d, 0, 300*time.Millisecond, time.Second), d.often(50)
	p.Spec.Endless = d.often(50) && p.Spec.Mode != "ordered"
	p.Spec.Rare = d.often(40) && p.Spec.Mode != "ordered" // in order, events without a listener die
	p.Spec.PauseFor, p.Spec.Down = one(d, 0, 2*time.Second, 3*time.Second), 10
	if d.often(30) {
		p.Drains = one(d, 1, 5, 50)
	}
	if p.Spec.Mode == "multi" {
		p.Spec.Bounded = one(d, 0, 1, 2, 4)
	}
	p.Spec.TakeBack, p.Spec.Latest = one(d, 0, 20, 40), one(d, 0, 10, 30)
	if p.Spec.Mode == "multi" {
		p.Spec.KeyBounded = one(d, 0, 1, 2, 4)
	}
}

// leaveOutSeldom leaves out what drawSeldom draws.
func (p *Plan) leaveOutSeldom() {
	p.Spec.Unique, p.Spec.Seldom, p.Spec.Expires, p.Spec.Endless, p.Spec.Rare, p.Spec.PauseFor, p.Spec.Bounded, p.Spec.KeyBounded, p.Drains = 0, 0, 0, false, false, 0, 0, 0, 0
	p.Spec.TakeBack, p.Spec.Latest = 0, 0
}

func (d draw) driver(database string) string {
	if database == "postgres" {
		return one(d, "pgx", "pgxpool", "pgxpool", "postgres")
	}
	return database
}

// adapters are two to four of the adapters that the driver has.
func (d draw) adapters(driver string) []string {
	all := []string{"sqltx", "raw", "bun", "gorm"}
	if driver == "pgxpool" {
		all = append(all, "pgx", "pgx-batch", "pgx")
	}
	d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:2+d.IntN(3)]
}

// pace is the time between two transactions of each of the writers: together the writers write no more
// than two busy cores can deliver.
func pace(writers int, mode string) time.Duration {
	second := map[string]int{"single": 80, "multi": 80, "by-key": 50, "ordered": 25}[mode]
	return time.Duration(writers) * time.Second / time.Duration(second)
}

// kinds draws the kinds of faults of a plan: no kinds, a few, or many.
func (d draw) kinds(p Plan) []string {
	all := []string{kill, stop, terminate, clock, lock, disk}
	if p.Database != "sqlite" {
		all = append(all, network, network, disconnect, crash)
	}
	d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	kinds := all[:one(d, 0, 1, 1, 2, 3, len(all))]
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// timeline draws a series of faults of some kinds.
func (d draw) timeline(p Plan, kinds []string) (faults []Fault) {
	if len(kinds) == 0 {
		return nil
	}
	for at := time.Duration(0); ; {
		f := Fault{Kind: one(d, kinds...), After: d.between(500*time.Millisecond, 5*time.Second)}
		switch f.Kind {
		case kill, terminate:
			f.For = d.between(0, time.Second)
		case stop:
			f.For = d.lease(p.Spec) * time.Duration(80+d.IntN(100)) / 100
		case network:
			f.Harm, f.For = one(d, faultrun.Harms...), d.between(100*time.Millisecond, 4*time.Second)
			if d.often(10) {
				f.For = d.lease(p.Spec) + time.Second
			}
		case clock:
			f.Offset, f.For = d.between(-5*time.Second, 5*time.Second), d.between(time.Second, 5*time.Second)
		case lock, disk:
			f.For = d.between(200*time.Millisecond, 3*time.Second)
		case crash:
			f.For = d.between(0, 2*time.Second)
		}
		if at += f.After + f.For; at > p.Duration {
			return faults
		}
		faults = append(faults, f)
	}
}

// lease is the time after which a silent process is considered dead.
func (d draw) lease(s faultrun.Spec) time.Duration {
	if s.Mode == "single" || s.Mode == "ordered" {
		return 9 * time.Second
	}
	return s.Lease
}
