package dashboard

import (
	"fmt"
	"time"

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

// span writes a duration with two units at most.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%g s", float64(d.Round(100*time.Millisecond))/float64(time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

// ago writes how long before now a time was, or how long after.
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "never"
	case d >= time.Second:
		return span(d.Truncate(time.Second)) + " ago"
	case d > -time.Second:
		return "just now"
	default:
		return "in " + span((-d).Truncate(time.Second))
	}
}

func utc(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func exact(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// machine formats a time for the attribute datetime.
func machine(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
