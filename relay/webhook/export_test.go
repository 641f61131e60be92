package webhook

import "time"

// LateAfter makes requests late after a time that is not a tenth of the Timeout. Call it before the start.
func (h *Hooks) LateAfter(d time.Duration) { h.slow.after = d }
