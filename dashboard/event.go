package dashboard

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/jsontext"
	"github.com/outboxkit/outbox-go/internal/verdict"
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
	pauses, err := p.outbox.Paused(ctx)
	if err != nil {
		return err
	}
	waits, err := verdict.Waits(ctx, p.outbox, &row, p.Now)
	if err != nil {
		return err
	}
	deleted, err := verdict.Deleted(ctx, p.outbox, &row)
	if err != nil {
		return err
	}
	headers, payload := hiddenContent(row.Payload.Len())
	if p.Role.May(httptx.ReadPayloads) {
		headers, payload = content(&row.Envelope)
	}
	row.Headers, row.Payload = nil, outbox.Payload{} // no page shows them by mistake
	return p.show(http.StatusOK, "Event", p.eventBody(&row, pauseOf(&row, pauses), waits, deleted, headers, payload))
}

func (p *page) eventBody(row *outbox.EventRow, paused outbox.Pause, waits, deleted string, headers, payload markup) markup {
	return tags(`<dl class="facts">
<dt>Id</dt><dd>{}</dd>
<dt>Status</dt><dd>{}</dd>
{}
<dt>Kind</dt><dd>{}</dd>
{}
<dt>Aggregate id</dt><dd>{}{}</dd>
<dt>Tenant</dt><dd>{}</dd>
</dl>
<section aria-labelledby="timeline"><h2 id="timeline">Timeline</h2>
<ol class="timeline">{}</ol></section>
{}
{}
<section aria-labelledby="headers"><h2 id="headers">Headers</h2>
{}</section>
<section aria-labelledby="payload"><h2 id="payload">Payload</h2>
{}</section>
{}
`,
		row.EventID, stateText(row, paused), notDelivered(row, waits, deleted), rowKind(row),
		when(row.Listener != "", `<dt>Event</dt><dd><a href="{}">{}</a>, for this one of its listeners</dd>`, link("event", "id", row.OriginalID), row.OriginalID),
		cmp.Or(row.AggregateID, "–"), when(row.AggregateID != "", ` (<a href="{}">all events of this aggregate</a>)`, link("events", "aggregate_type", string(row.AggregateType), "aggregate_id", row.AggregateID)), cmp.Or(row.TenantID, "–"),
		each(timeline(row), func(s step) markup {
			return tags(`<li{}><strong>{}</strong> {} <span class="text">{}</span></li>
`, when(s.Bad, ` class="bad"`), s.What, when(!s.At.IsZero(), `{}`, both(s.At)), s.Text)
		}),
		when(row.Status == outbox.StatusDead && p.Operates(), `<form method="post" action="confirm" class="buttons">
{}<input type="hidden" name="scope" value="selection"><input type="hidden" name="id" value="{}">
<button name="action" value="replay">Replay …</button> <button name="action" value="delete" class="danger">Delete …</button>
</form>`, p.token("confirm"), row.EventID)+
			when(row.DeletionID != "" && p.Operates(), `{}`, p.undo("confirm", row.DeletionID, "Undo the deletion …")),
		when(p.Operates() && paused.Since.IsZero(), `<form method="post" action="confirm" class="buttons">{}{}<button name="action" value="pause">Pause this kind …</button></form>`,
			p.token("confirm"), kindFields(row.AggregateType, row.EventType))+
			when(!paused.Since.IsZero(), `<div class="buttons">{}{}</div>`, p.resume(paused), when(p.Operates(), ` <a href="steering">All pauses</a>`)),
		headers, payload, contractOf(p.dashboard.config.Contracts, row.AggregateType, row.EventType))
}

// notDelivered says why the event was not delivered, if it was not.
func notDelivered(row *outbox.EventRow, waits, deleted string) markup {
	if deleted != "" {
		return tags(`<dt>The dead letter</dt><dd class="why">{}</dd>`, deleted)
	}
	if row.Status == outbox.StatusDead {
		return tags(`<dt>Dead because</dt><dd class="bad">{}</dd>`, cmp.Or(row.LastError, "(no reason)"))
	}
	why := prose(waits)
	if id, ok := verdict.Before(waits); ok {
		why = tags(`event <a href="{}">{}</a>{}`, link("event", "id", id), id, prose(strings.TrimPrefix(waits, "event "+id)))
	}
	return when(waits != "", `<dt>Waits because</dt><dd class="why">{}</dd>`, why)
}

// kindFields are the hidden fields that name a kind.
func kindFields(a outbox.AggregateType, e outbox.EventType) markup {
	return tags(`<input type="hidden" name="event_type" value="{}"><input type="hidden" name="aggregate_type" value="{}">`, e, a)
}

// hiddenContent stands for headers and a payload that the user may not read.
func hiddenContent(size int) (headers, payload markup) {
	return `<p class="none">Headers are hidden: your role lacks ReadPayloads.</p>`,
		tags(`<p class="none">The payload of {} bytes is hidden: your role lacks ReadPayloads.</p>`, count(size))
}

// content writes the headers and the payload, or their beginnings.
func content(env *outbox.Envelope) (headers, payload markup) {
	shown, isCut := shownHeaders(env.Headers)
	headers = `<p class="none">None.</p>`
	if len(shown) > 0 {
		headers = tags(`<div class="wide"><table><thead><tr><th scope="col">Key</th><th scope="col">Value</th></tr></thead><tbody>{}</tbody></table></div>
`, each(shown, func(h header) markup {
			return tags(`<tr><th scope="row" class="text">{}</th><td class="text" data-label="Value">{}</td></tr>`, h.Key, h.Value)
		}))
	}
	text, whole := shownPayload(env)
	download, size := link("payload", "id", env.EventID), count(env.Payload.Len())
	version := env.Payload.Version()
	payload = tags(`{}{}
{}
<pre tabindex="0" aria-labelledby="payload">{}</pre>`,
		when(version > 1, `<p>Version {} of the format.</p>
`, version),
		when(isCut || !whole, `<p class="note" role="status">Not all of it fits on a page. <a href="{}">Download the payload</a> of {} bytes.</p>`, download, size),
		when(!env.Payload.IsJSON(), `<p>{} bytes of <code>{}</code>; <a href="{}">download them</a>.</p>`, size, env.Payload.ContentType(), download),
		text)
	return headers, payload
}

// pauseOf returns the pause that a waiting event waits for, or the zero [outbox.Pause].
func pauseOf(row *outbox.EventRow, pauses []outbox.Pause) outbox.Pause {
	if row.Status.Terminal() {
		return outbox.Pause{}
	}
	for _, pause := range pauses {
		ofKind := pause.AggregateID == "" || pause.AggregateID == row.AggregateID
		if ofKind && pause.Kind == (outbox.EventKind{AggregateType: row.AggregateType, EventType: row.EventType}) {
			return pause
		}
	}
	return outbox.Pause{}
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
	p.hasRead()
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
func timeline(row *outbox.EventRow) []step {
	steps := []step{{At: row.OccurredAt, What: "Written"}}
	waiting := !row.Status.Terminal()
	if row.Attempts == 0 && row.AvailableAt.After(row.OccurredAt) {
		steps = append(steps, step{At: row.AvailableAt, What: "Due", Text: "(delayed, deferred or replayed)"})
	}
	if row.Attempts > 0 {
		last := "(no error is stored: a process that dies leaves none)"
		if row.LastError != "" {
			last = "the last one: " + row.LastError
		}
		steps = append(steps, step{What: fmt.Sprintf("%d failed %s", row.Attempts, plural("attempt", row.Attempts)), Text: last, Bad: row.LastError != ""})
	}
	if waiting && row.Attempts == 0 && row.LastError != "" {
		steps = append(steps, step{What: "Deferred", Text: row.LastError})
	}
	if waiting && row.Attempts > 0 {
		steps = append(steps, step{At: row.AvailableAt, What: "Next try"})
	}
	if row.Lease != "" {
		steps = append(steps, step{At: row.LeasedAt, What: "Leased", Text: "by " + row.Lease})
	}
	switch row.Status {
	case outbox.StatusDone:
		if row.DeletionID != "" {
			return append(steps, step{At: row.DiedAt, What: "Dead", Text: row.LastError, Bad: true}, step{At: row.EndedAt, What: "Deleted", Text: "by the deletion " + row.DeletionID})
		}
		steps = append(steps, step{At: row.EndedAt, What: "Done", Text: verdict.Span(row.EndedAt.Sub(row.AvailableAt)) + " after it was due"})
	case outbox.StatusDead:
		steps = append(steps, step{At: row.EndedAt, What: "Dead", Text: row.LastError, Bad: true})
	case outbox.StatusNew, outbox.StatusRetry:
	}
	return steps
}

func plural(noun string, n int) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
