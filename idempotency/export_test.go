package idempotency

import "time"

// Share lets requests of two keys wait for each other, as requests of one do.
func (k *Keys) Share(other *Keys) { k.turns = other.turns }

// Wait changes how long requests wait.
func (k *Keys) Wait(wait time.Duration) { k.wait = wait }

// Waiting is how many requests of this process have a turn or wait for one.
func (k *Keys) Waiting() (n int) {
	k.turns.mu.Lock()
	defer k.turns.mu.Unlock()
	for _, own := range k.turns.open {
		n += own.all
	}
	return n
}
