package dashboard

import (
	"fmt"
	"strings"
	"time"
)

// moment writes how long ago a time was, or how far ahead, with the exact time for a pointer that
// rests on it. The script puts the time of the browser's zone first, and keeps the age true.
func moment(t time.Time) markup {
	if t.IsZero() {
		return "–"
	}
	return tags(`<time class="age" datetime="{}" title="{} UTC">{}</time>`, machine(t), utc(t), ago(t, time.Now()))
}

// both writes an exact time, and how long ago or ahead it is.
func both(t time.Time) markup { return tags(`{} ({})`, instant(t), moment(t)) }

// instant writes an exact time. The script writes the time of the browser's zone instead, and keeps the
// text for a pointer that rests on it.
func instant(t time.Time) markup {
	if t.IsZero() {
		return "–"
	}
	return tags(`<time class="exact" datetime="{}">{} UTC</time>`, machine(t), exact(t))
}

// clock writes the time of a day in UTC. The script writes it in the browser's zone.
func clock(t time.Time) markup {
	return tags(`<time class="clock" datetime="{}" title="{} UTC">{}</time>`, machine(t), utc(t), t.UTC().Format("15:04:05"))
}

// prose writes a text, and the exact times in the text as [instant] writes them.
func prose(text string) markup {
	const layout = "2006-01-02 15:04:05 UTC"
	var written markup
	for {
		end := strings.Index(text, " UTC")
		if end < 0 {
			return written + tags(`{}`, text)
		}
		end += len(" UTC")
		begin := max(end-len(layout), 0)
		if t, err := time.Parse(layout, text[begin:end]); err == nil {
			written += tags(`{}<time class="exact" datetime="{}">{}</time>`, text[:begin], machine(t), text[begin:end])
		} else {
			written += tags(`{}`, text[:end])
		}
		text = text[end:]
	}
}

// ago writes how long before now a time was, or how long after.
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "never"
	case d >= time.Second:
		return age(d) + " ago"
	case d > -time.Second:
		return "just now"
	default:
		return "in " + age(-d)
	}
}

// age writes a duration of a second or more, rounded down; from an hour on with two units.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d days %d h", int(d.Hours())/24, int(d.Hours())%24)
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
