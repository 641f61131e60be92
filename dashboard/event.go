package dashboard

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/jsontext"
	"github.com/outboxkit/outbox-go/outbox"
)

// step is a line of an event's timeline.
type step struct {
	At         time.Time // zero: unknown
	What, Text string
	Bad        bool
}

type header struct{ Key, Value string }

// event shows a single event.
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
		Paused   bool // the kind is paused; the event waits
		Steps    []step
		Bytes    int
		Type     string // of the payload's content; empty: JSON
		Headers  []header
		Payload  string
		Cut      bool // the payload or the headers are longer than the shown part
		Readable bool // headers and payload are shown
	}{EventRow: row, Dead: row.Status == outbox.StatusDead, Paused: !paused.Since.IsZero(), Steps: timeline(&row, paused, p.Now), Bytes: row.Payload.Len(), Readable: p.Role.May(httptx.ReadPayloads)}
	if data.Readable {
		var whole bool
		data.Headers, data.Cut = shownHeaders(row.Headers)
		data.Payload, whole = shownPayload(&row.Envelope)
		data.Cut = data.Cut || !whole
	}
	if !row.Payload.IsJSON() {
		data.Type = row.Payload.ContentType()
	}
	data.EventRow.Headers, data.EventRow.Payload = nil, outbox.Payload{} // no template shows them by mistake
	return p.show(http.StatusOK, "event.html", "Event", data)
}

// pauseOf returns the pause that a waiting event waits for, or the zero [outbox.Pause].
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

// maxShown is how much of a payload, and of the headers, a page shows, in bytes.
const maxShown = 64 << 10

// shownPayload returns the beginning of the payload, indented, or in hexadecimal digits if the
// payload is not JSON.
func shownPayload(env *outbox.Envelope) (text string, whole bool) {
	if !env.Payload.IsJSON() {
		const line = 16 // bytes, of which hex.Dump makes 79
		data := env.Payload.Bytes()
		n := min(len(data), maxShown/79*line)
		return hex.Dump(data[:n]), n == len(data)
	}
	shown, whole := jsontext.Indent(env.Payload.Bytes(), maxShown)
	return strings.ToValidUTF8(string(shown), "�"), whole
}

// shownHeaders returns the first headers.
func shownHeaders(all map[string]string) (shown []header, isCut bool) {
	left := maxShown
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if left -= len(key) + len(all[key]); left < 0 {
			return shown, true
		}
		shown = append(shown, header{key, all[key]})
	}
	return shown, false
}

// payload sends the unchanged payload, for a file.
func (p *page) payload() error {
	in, err := p.query("id")
	if err != nil {
		return err
	}
	if !p.Role.May(httptx.ReadPayloads) {
		return &problem{http.StatusForbidden, "Refused", "You may look, but not read payloads: your role lacks ReadPayloads."}
	}
	ctx, cancel := p.context()
	defer cancel()
	row, err := p.outbox.FindEvent(ctx, in.get("id"))
	if err != nil {
		return err
	}
	contentType, name := "application/json", "payload.json"
	if !row.Payload.IsJSON() { // a payload must not open in a browser as, say, text/html
		contentType, name = "application/octet-stream", "payload.bin"
	}
	p.w.Header().Set("Content-Type", contentType)
	p.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = p.w.Write(row.Payload.Bytes()) // an error means that the client has gone
	return nil
}

// timeline returns the steps of the event's life that the row records.
func timeline(row *outbox.EventRow, paused outbox.Pause, now time.Time) []step {
	steps := []step{{At: row.OccurredAt, What: "Written"}}
	waiting := !row.Status.Terminal()
	if row.Attempts == 0 && row.AvailableAt.After(row.OccurredAt) {
		steps = append(steps, step{At: row.AvailableAt, What: "Due", Text: "(delayed, deferred or replayed)"})
	}
	if row.Attempts > 0 {
		steps = append(steps, step{What: fmt.Sprintf("%d failed %s", row.Attempts, plural("attempt", row.Attempts)), Text: "the last one: " + row.LastError, Bad: true})
	}
	if waiting && row.Attempts == 0 && row.LastError != "" {
		steps = append(steps, step{What: "Deferred", Text: row.LastError})
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
