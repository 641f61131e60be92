// Package shares divides limits among processes. A table has a row with the shares of all processes,
// and each process replaces the row by compare-and-set, so that the shares together are never more
// than the limits. No share is asked for while a process works: a process acts on its share until the
// share ends, and renews the share long before.
package shares

// Limits are bounds of all processes together. At least one of Concurrency and Rate is set.
type Limits struct {
	Concurrency int     `json:"c,omitempty"` // how many run at once; 0: no bound
	Rate        float64 `json:"r,omitempty"` // how many begin in a second; 0: no bound
	Burst       int     `json:"b,omitempty"` // how many begin at once; only with a Rate
}

// Parts is the number of equal parts into which the limits are divided: as many as there are places
// and tokens of the burst, so that a process with a part can work.
func (l Limits) Parts() int {
	switch {
	case l.Rate == 0:
		return l.Concurrency
	case l.Concurrency == 0:
		return l.Burst
	default:
		return min(l.Concurrency, l.Burst)
	}
}

// Of are the limits of a process that has this many parts.
func (l Limits) Of(parts int) Limits {
	total := l.Parts()
	return Limits{
		Concurrency: l.Concurrency * parts / total, Burst: l.Burst * parts / total,
		Rate: l.Rate * float64(parts) / float64(total),
	}
}

// holding is the least number of parts that have this many places.
func (l Limits) holding(running int) int {
	if l.Concurrency == 0 {
		return 0
	}
	total := l.Parts()
	return min((running*total+l.Concurrency-1)/l.Concurrency, total)
}
