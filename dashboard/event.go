package dashboard

import (
	"bytes"
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
	data := struct {
		outbox.EventRow
		Dead     bool
		Steps    []step
		Bytes    int
		Headers  []header
		Payload  string
		Readable bool // headers and payload are shown
	}{EventRow: row, Dead: row.Status == outbox.StatusDead, Steps: timeline(&row, p.Now), Bytes: row.Payload.Len(), Readable: p.Role.May(httptx.ReadPayloads)}
	if data.Readable {
		for _, key := range slices.Sorted(maps.Keys(row.Headers)) {
			data.Headers = append(data.Headers, header{key, row.Headers[key]})
		}
		data.Payload = indented(&row.Envelope)
	}
	data.EventRow.Headers, data.EventRow.Payload = nil, outbox.Payload{} // no template shows them by mistake
	return p.show(http.StatusOK, "event.html", "Event", data)
}

func indented(env *outbox.Envelope) string {
	var text bytes.Buffer
	if json.Indent(&text, env.Payload.Bytes(), "", "  ") != nil {
		return env.Payload.String() // it was not written by this library
	}
	return text.String()
}

// timeline is what the row says of the event's life.
func timeline(row *outbox.EventRow, now time.Time) []step {
	steps := []step{{At: row.OccurredAt, What: "Written", Text: "when it occurred"}}
	waiting := !row.Status.Terminal()
	if row.Attempts == 0 && row.AvailableAt.After(row.OccurredAt) {
		steps = append(steps, step{At: row.AvailableAt, What: "Due", Text: "delayed by " + span(row.AvailableAt.Sub(row.OccurredAt))})
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
		steps = append(steps, step{What: "Waiting", Text: "for its delivery"})
	}
	return steps
}

func plural(noun string, n int) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
