package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

// step is a line of an event's timeline.
type step struct {
	At         time.Time // zero: unknown
	What, Text string
	Bad        bool
}

type header struct{ Key, Value string }

// event shows one event.
func (p *page) event() error {
	in, err := p.query("id")
	if err != nil {
		return err
	}
	if in.get("id") == "" {
		return &inputError{"id", "is missing; give the id of an event"}
	}
	ctx, cancel := p.context()
	defer cancel()
	row, err := p.outbox.FindEvent(ctx, in.get("id"))
	if err != nil {
		return err
	}
	paused, err := p.pauseOf(ctx, &row)
	if err != nil {
		return err
	}
	data := struct {
		outbox.EventRow
		Dead     bool
		Paused   bool // its kind; the event waits
		Steps    []step
		Bytes    int
		Headers  []header
		Payload  string
		Readable bool // headers and payload are shown
	}{EventRow: row, Dead: row.Status == outbox.StatusDead, Paused: !paused.Since.IsZero(), Steps: timeline(&row, paused, p.Now), Bytes: row.Payload.Len(), Readable: p.Role.May(httptx.ReadPayloads)}
	if data.Readable {
		for _, key := range slices.Sorted(maps.Keys(row.Headers)) {
			data.Headers = append(data.Headers, header{key, row.Headers[key]})
		}
		data.Payload = indented(&row.Envelope)
	}
	data.EventRow.Headers, data.EventRow.Payload = nil, outbox.Payload{} // no template shows them by mistake
	return p.show(http.StatusOK, "event.html", "Event", data)
}

// pauseOf is the pause that a waiting event waits for, or the zero one.
func (p *page) pauseOf(ctx context.Context, row *outbox.EventRow) (outbox.Pause, error) {
	if row.Status.Terminal() {
		return outbox.Pause{}, nil
	}
	list, err := p.outbox.Paused(ctx)
	for _, pause := range list {
		if pause.Kind == (outbox.EventKind{AggregateType: row.AggregateType, EventType: row.EventType}) {
			return pause, err
		}
	}
	return outbox.Pause{}, err
}

func indented(env *outbox.Envelope) string {
	var text bytes.Buffer
	if json.Indent(&text, env.Payload.Bytes(), "", "  ") != nil {
		return env.Payload.String() // it was not written by this library
	}
	return text.String()
}

// timeline is what the row says of the event's life.
func timeline(row *outbox.EventRow, paused outbox.Pause, now time.Time) []step {
	steps := []step{{At: row.OccurredAt, What: "Written"}}
	waiting := !row.Status.Terminal()
	if row.Attempts == 0 && row.AvailableAt.After(row.OccurredAt) {
		steps = append(steps, step{At: row.AvailableAt, What: "Due", Text: "(delayed, deferred or replayed)"})
	}
	if row.Attempts > 0 {
		steps = append(steps, step{What: fmt.Sprintf("%d failed %s", row.Attempts, plural("attempt", row.Attempts)), Text: "the last one: " + row.LastError, Bad: true})
	}
	if waiting && row.Attempts > 0 {
		steps = append(steps, step{At: row.AvailableAt, What: "Next try", Text: ago(row.AvailableAt, now)})
	}
	if row.Lease != "" {
		steps = append(steps, step{At: row.LeasedAt, What: "Leased", Text: "by " + row.Lease})
	}
	switch row.Status {
	case outbox.StatusDone:
		steps = append(steps, step{At: row.EndedAt, What: "Done", Text: span(row.EndedAt.Sub(row.AvailableAt)) + " after it was due"})
	case outbox.StatusDead:
		steps = append(steps, step{At: row.EndedAt, What: "Dead", Text: row.LastError, Bad: true})
	case outbox.StatusNew, outbox.StatusRetry:
		text := "for its delivery"
		if !paused.Since.IsZero() {
			text = "its kind is paused since " + utc(paused.Since)
		}
		steps = append(steps, step{What: "Waiting", Text: text})
	}
	return steps
}

func plural(noun string, n int) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
