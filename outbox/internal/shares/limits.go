// Package shares divides limits among processes. A table has a row with the shares of all processes,
// and each process replaces the row by compare-and-set, so that the shares together are never more
// than the limits. No share is asked for while a process works: a process acts on its share until the
// share ends, and renews the share long before.
package shares

// Limits are bounds of all processes together. At least one of them is set.
type Limits struct {
	Concurrency int     `json:"c,omitempty"` // how many run at once; 0: no bound
	Rate        float64 `json:"r,omitempty"` // how many begin in a second; 0: no bound
	Burst       int     `json:"b,omitempty"` // how many begin at once; only with a Rate
	// KeyConcurrency and KeyRate bound the work of each key; 0: no bound. A share says which part of them a
	// process has, and the process keeps to it by itself.
	KeyConcurrency int     `json:"kc,omitempty"`
	KeyRate        float64 `json:"kr,omitempty"`
}

// onlyKeyRate is the number of parts of limits that have nothing but a KeyRate.
const onlyKeyRate = 64

// Parts is the number of equal parts into which the limits are divided: as many as there are places,
// places of a key, and tokens of the burst, so that a process with a part can work.
func (l Limits) Parts() int {
	parts := 0
	for _, n := range []int{l.Concurrency, l.Burst, l.KeyConcurrency} {
		if n > 0 && (parts == 0 || n < parts) {
			parts = n
		}
	}
	if parts == 0 {
		return onlyKeyRate
	}
	return parts
}

// Of are the limits of a process that has this many parts.
func (l Limits) Of(parts int) Limits {
	total := l.Parts()
	share := float64(parts) / float64(total)
	return Limits{
		Concurrency: l.Concurrency * parts / total, Burst: l.Burst * parts / total, Rate: l.Rate * share,
		KeyConcurrency: l.KeyConcurrency * parts / total, KeyRate: l.KeyRate * share,
	}
}

// holding is the least number of parts that have this many places, even if all work is of one key.
func (l Limits) holding(running int) int {
	total, parts := l.Parts(), 0
	for _, places := range []int{l.Concurrency, l.KeyConcurrency} {
		if places > 0 {
			parts = max(parts, min((running*total+places-1)/places, total))
		}
	}
	return parts
}
