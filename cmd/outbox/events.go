package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// listPages is how many pages a listing reads at most. Each page is read from at most
// outbox.SearchLimit rows.
const listPages = 50

var statuses = map[string]outbox.Status{
	"new": outbox.StatusNew, "retry": outbox.StatusRetry, "done": outbox.StatusDone, "dead": outbox.StatusDead,
}

func (a *app) events() *cobra.Command {
	return groupOf("events", "Lists and shows events", a.eventsList(), a.eventsShow())
}

func (a *app) eventsList() *cobra.Command {
	var f filter
	var status []string
	var limit int
	var after string
	cmd := &cobra.Command{
		Use: "list", Short: "Lists events, without payloads and headers", Args: takesNothing,
		Long: `Lists events, without payloads and headers.

Events that are new or retry are listed by the time when they become due, the earliest
first. Only done or only dead events are listed by the time when they became so, the
latest first. Everything else is listed by event id, the greatest first; --since and
--until are then about the time of the event.

One listing looks at 100,000 rows at most and says how to go on.`,
		Example: "  outbox events list --status new,retry\n  outbox events list --status done --since 1h --event-type OrderPlaced",
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			q, err := eventQuery(f, status, limit, after, c.now())
			if err != nil {
				return err
			}
			rows, next, err := c.find(ctx, q)
			if err != nil {
				return err
			}
			return a.printEvents(rows, next)
		}),
	}
	f.register(cmd, "only events")
	cmd.Flags().StringSliceVar(&status, "status", nil, "only events of these statuses: new, retry, done, dead")
	cmd.Flags().IntVar(&limit, "limit", outbox.DefaultFindLimit, "the most events to list")
	cmd.Flags().StringVar(&after, "after", "", "go on behind an earlier listing")
	return cmd
}

func eventQuery(f filter, status []string, limit int, after string, now time.Time) (outbox.EventQuery, error) {
	if err := checkCount("--limit", limit, outbox.MaxFindLimit); err != nil {
		return outbox.EventQuery{}, err
	}
	chosen, err := f.events(now)
	if err != nil {
		return outbox.EventQuery{}, err
	}
	for _, name := range status {
		s, known := statuses[strings.ToLower(name)]
		if !known {
			return outbox.EventQuery{}, &usageError{"--status", fmt.Sprintf("has an unknown status of %d bytes; known are new, retry, done and dead", len(name))}
		}
		if !slices.Contains(chosen.Statuses, s) {
			chosen.Statuses = append(chosen.Statuses, s)
		}
	}
	return outbox.EventQuery{EventFilter: chosen, Limit: limit, After: after}, nil
}

// find reads pages until they have as many events as the limit.
func (c *client) find(ctx context.Context, q outbox.EventQuery) (rows []outbox.EventRow, next string, err error) {
	limit := q.Limit
	for range listPages {
		q.Limit = limit - len(rows)
		page, err := c.ob.FindEvents(ctx, q)
		if err != nil {
			return nil, "", wrongAfter(err, q.After)
		}
		rows, next = append(rows, page.Rows...), page.Next
		if q.After = next; next == "" || len(rows) >= limit {
			break
		}
	}
	return rows, next, nil
}

// wrongAfter reports an --after that no listing printed. Other errors stay as they are.
func wrongAfter(err error, after string) error {
	var field *outbox.FieldError
	if errors.As(err, &field) && (field.Field == "EventQuery.After" || field.Field == "DeadQuery.After") {
		return &usageError{"--after", fmt.Sprintf("is a text of %d bytes; it must be what an earlier listing printed", len(after))}
	}
	return err
}

func (a *app) printEvents(rows []outbox.EventRow, next string) error {
	answer := eventListing{Events: []event{}, Next: next}
	for i := range rows {
		answer.Events = append(answer.Events, eventOf(&rows[i]))
	}
	err := a.print(answer, func(t *table) {
		t.row("EVENT ID", "STATUS", "TYPE", "AGGREGATE ID", "ATTEMPTS", "DUE", "ENDED", "LISTENER", "LAST ERROR")
		for _, e := range answer.Events {
			t.row(e.EventID, e.Status, kindText(e.AggregateType, e.EventType), short(e.AggregateID), e.Attempts, e.AvailableAt, e.EndedAt, short(e.Listener), short(e.LastError))
		}
	})
	a.goOn(next)
	return err
}

func kindText(aggregate outbox.AggregateType, event outbox.EventType) string {
	return outbox.EventKind{AggregateType: aggregate, EventType: event}.String()
}

// goOn says how to list the next page. A cursor has only letters, digits, - and _.
func (a *app) goOn(next string) {
	if next != "" && !a.json {
		_, _ = fmt.Fprintf(a.errOut, "There may be more: add --after %s\n", next)
	}
}

func (a *app) eventsShow() *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use: "show EVENT_ID", Short: "Shows one event", Args: takes(1, 1, "one event id"),
		RunE: a.with(func(ctx context.Context, c *client, args []string) error {
			id, err := eventID(args[0])
			if err != nil {
				return err
			}
			row, err := c.ob.FindEvent(ctx, id)
			if err != nil {
				return notFound(err, "there is no event with this id")
			}
			e := eventOf(&row)
			if e.Waits, err = verdict.Waits(ctx, c.ob, &row, c.now()); err != nil {
				return err
			}
			if payload {
				e.Disclosed = operjson.Disclose(&row.Envelope)
			}
			return a.print(e, func(t *table) {
				t.field("event", e.EventID)
				t.field("status", e.Status)
				t.field("waits because", e.Waits)
				t.fields(e.EventType, e.AggregateType, e.AggregateID, e.TenantID, e.Listener, e.OriginalID)
				t.field("occurred", e.OccurredAt)
				t.field("due", e.AvailableAt)
				t.field("ended", e.EndedAt)
				t.field("attempts", e.Attempts)
				t.field("last error", e.LastError)
				t.field("lease", e.Lease)
				t.field("leased", e.LeasedAt)
				t.disclosed(e.Disclosed)
			})
		}),
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payload and the headers too")
	return cmd
}

// eventID checks an argument.
func eventID(text string) (string, error) {
	if text == "" {
		return "", &usageError{"EVENT_ID", "is empty"}
	}
	return text, checkText("EVENT_ID", text, outbox.MaxEventIDLength)
}

// missing is [outbox.ErrNotFound] with another text.
type missing string

func (m missing) Error() string      { return string(m) }
func (missing) Is(target error) bool { return target == outbox.ErrNotFound }

// notFound gives ErrNotFound a text; other errors stay as they are.
func notFound(err error, text string) error {
	if exitCode(err) == exitNotFound {
		return missing(text)
	}
	return err
}

// fields writes the fields that events and dead letters share.
func (t *table) fields(eventType outbox.EventType, aggregateType outbox.AggregateType, aggregateID, tenant, listener, original string) {
	t.field("type", eventType)
	t.field("aggregate type", aggregateType)
	t.field("aggregate id", aggregateID)
	t.field("tenant", tenant)
	t.field("listener", listener)
	t.field("original event", original)
}

// shownBytes is how many bytes of a payload that is not JSON a table shows.
const shownBytes = 64

// disclosed writes the headers and the payload, if they are to be shown.
func (t *table) disclosed(d operjson.Disclosed) {
	keys := make([]string, 0, len(d.Headers))
	for key := range d.Headers {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		t.field("header "+printable(key), d.Headers[key])
	}
	if d.ContentType == "" {
		t.field("payload", string(d.Payload))
		return
	}
	t.field("content type", d.ContentType)
	text := fmt.Sprintf("%d bytes: %x", len(d.Bytes), d.Bytes[:min(len(d.Bytes), shownBytes)])
	if len(d.Bytes) > shownBytes {
		text += "…"
	}
	t.field("payload", text)
}
