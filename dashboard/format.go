package dashboard

import (
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// count writes a number with thin spaces between thousands.
func count(n any) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// upTo writes a count that stops at [outbox.StatsLimit].
func upTo(n int64) string {
	if n >= outbox.StatsLimit {
		return count(n) + " or more"
	}
	return count(n)
}
