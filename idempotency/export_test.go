package idempotency

// Waiting is how many requests of this process have a turn or wait for one.
func (k *Keys) Waiting() (n int) {
	k.turns.mu.Lock()
	defer k.turns.mu.Unlock()
	for _, own := range k.turns.open {
		n += own.all
	}
	return n
}
