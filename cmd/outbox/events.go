package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// Bounds of a listing.
const (
	defaultMaxRows = 50 * outbox.SearchLimit
	defaultMaxTime = time.Minute
	// pagePatience is how long a page may take, which looks at outbox.SearchLimit rows.
	pagePatience = 30 * time.Second
)

func (a *app) events() *cobra.Command {
	return groupOf("events", "Lists and shows events", a.eventsList(), a.eventsShow())
}

// search is the flags of a listing of events.
type search struct {
	filter
	idPrefix, errorText, after string
	deletion                   string
	states                     []string
	limit, maxRows             int
	maxTime                    time.Duration
}

func (a *app) eventsList() *cobra.Command {
	var f search
	cmd := &cobra.Command{
		Use: "list", Short: "Lists events, without payloads and headers", Args: takesNothing,
		Long: `Lists events, without payloads and headers.

Events that are new or retry are listed by the time when they become due, the earliest
first. Only done or only dead events are listed by the time when they became so, the
latest first. A deleted dead letter that can be restored counts as done, and is listed with
the status DELETED. Everything else, and each listing with --id-prefix, is listed by event id,
the greatest first; --since and --until are then about the time of the event.

The status waiting stands for new and retry. The statuses due, delayed and leased are new
or retry, and stand alone. Rows under a lease are listed with it; another process takes
the event over when the lease expires.

A listing goes on until it has as many events as --limit, there are no more, or it has
looked at --max-rows or taken --max-time. It says how many rows it looked at, how to go on,
and which index would have found the events directly.`,
		Example: "  outbox events list --status new,retry\n  outbox events list --status done --since 1h --event-type OrderPlaced\n  outbox events list --id-prefix 01KQ9ZJ6\n  outbox events list --status retry --error-text \"connection refused\"",
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			q, err := f.query(c.now())
			if err != nil {
				return err
			}
			page, err := c.find(ctx, q, f.maxRows, f.maxTime)
			if err != nil {
				return err
			}
			return a.printEvents(&page)
		}),
	}
	f.register(cmd, "only events")
	flags := cmd.Flags()
	flags.StringVar(&f.idPrefix, "id-prefix", "", "only events whose id begins with this text, in the same case")
	flags.StringVar(&f.errorText, "error-text", "", "only events whose last error contains this text; A to Z match in both cases")
	flags.StringVar(&f.deletion, "deletion", "", "only events that this deletion of dead letters deleted and that can be restored")
	flags.StringSliceVar(&f.states, "status", nil, "only events of these statuses: new, retry, done, dead, waiting, or one of due, delayed, leased")
	flags.IntVar(&f.limit, "limit", outbox.DefaultFindLimit, "the most events to list")
	flags.IntVar(&f.maxRows, "max-rows", defaultMaxRows, "stop after a page when so many rows were looked at")
	flags.DurationVar(&f.maxTime, "max-time", defaultMaxTime, "stop after a page when so much time is over")
	flags.StringVar(&f.after, "after", "", "go on behind an earlier listing")
	return cmd
}

// query checks the flags.
func (f *search) query(now time.Time) (q outbox.EventQuery, err error) {
	if err := checkCount("--limit", f.limit, outbox.MaxFindLimit); err != nil {
		return q, err
	}
	if err := checkCount("--max-rows", f.maxRows, math.MaxInt32); err != nil {
		return q, err
	}
	if f.maxTime <= 0 {
		return q, &usageError{"--max-time", "must be longer than zero"}
	}
	if q.EventFilter, err = f.events(now); err != nil {
		return q, err
	}
	q.IDPrefix, q.ErrorText, q.Limit, q.After = f.idPrefix, f.errorText, f.limit, f.after
	if err := checkText("--id-prefix", f.idPrefix, outbox.MaxEventIDLength); err != nil {
		return q, err
	}
	if err := checkText("--error-text", f.errorText, outbox.MaxErrorLength); err != nil {
		return q, err
	}
	q.DeletionID = f.deletion
	names := make([]string, len(f.states))
	for i, name := range f.states {
		names[i] = strings.ToUpper(name)
	}
	if !operjson.Choose(&q.EventFilter, names, now) {
		return q, &usageError{"--status", fmt.Sprintf("has an unknown status, or several of which one stands alone, in a text of %d bytes; known are new, retry, done, dead and waiting, and alone due, delayed and leased", len(strings.Join(f.states, ",")))}
	}
	return q, nil
}

// find reads pages until they have as many events as the limit, or a bound is reached.
func (c *client) find(ctx context.Context, q outbox.EventQuery, maxRows int, maxTime time.Duration) (all outbox.Page[outbox.EventRow], err error) {
	limit, began := q.Limit, time.Now()
	for {
		q.Limit = limit - len(all.Rows)
		page, err := c.page(ctx, q)
		if err != nil {
			return all, wrongAfter(err, q.After)
		}
		all.Rows, all.Next = append(all.Rows, page.Rows...), page.Next
		all.Looked += page.Looked
		all.Missing = cmp.Or(page.Missing, all.Missing)
		q.After = page.Next
		if page.Next == "" || len(all.Rows) >= limit || all.Looked >= maxRows || time.Since(began) >= maxTime {
			return all, nil
		}
	}
}

// page reads a page, within the patience.
func (c *client) page(ctx context.Context, q outbox.EventQuery) (outbox.Page[outbox.EventRow], error) {
	limited, cancel := context.WithTimeout(ctx, pagePatience)
	defer cancel()
	page, err := c.ob.FindEvents(limited, q)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("the database did not read %d rows within %s: %w", outbox.SearchLimit, pagePatience, err)
	}
	return page, err
}

// wrongAfter reports an --after that no listing printed, and an id that no deletion has. Other errors stay
// as they are.
func wrongAfter(err error, after string) error {
	var field *outbox.FieldError
	if errors.As(err, &field) && field.Field == "EventFilter.DeletionID" {
		return &usageError{"--deletion", field.Problem}
	}
	if errors.As(err, &field) && (field.Field == "EventQuery.After" || field.Field == "DeadQuery.After") {
		return &usageError{"--after", fmt.Sprintf("is a text of %d bytes; it must be what an earlier listing printed", len(after))}
	}
	return err
}

func (a *app) printEvents(page *outbox.Page[outbox.EventRow]) error {
	answer := eventListing{Events: []event{}, Next: page.Next, Search: operjson.SearchOf(page)}
	for i := range page.Rows {
		answer.Events = append(answer.Events, eventOf(&page.Rows[i]))
	}
	err := a.print(answer, func(t *table) {
		t.row("EVENT ID", "STATUS", "TYPE", "AGGREGATE ID", "ATTEMPTS", "DUE", "ENDED", "LISTENER", "LEASE", "LEASED", "LAST ERROR")
		for _, e := range answer.Events {
			t.row(e.EventID, e.Status, kindText(e.AggregateType, e.EventType), short(e.AggregateID), e.Attempts, e.AvailableAt, e.EndedAt, short(e.Listener), short(e.Lease), e.LeasedAt, short(e.LastError))
		}
	})
	if err == nil && !a.json {
		_, _ = fmt.Fprintf(a.errOut, "Looked at %d rows; found %d.\n", page.Looked, len(page.Rows))
		if page.Missing != nil {
			_, _ = fmt.Fprintf(a.errOut, "This read many rows: %s.\n", printable(missingIndex(page.Missing)))
		}
	}
	a.goOn(page.Next)
	return err
}

// missingIndex is a sentence about an index. The command finds the search index itself.
func missingIndex(m *outbox.MissingIndex) string {
	own := *m
	own.Option = ""
	return own.String()
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
			deleted, err := verdict.Deleted(ctx, c.ob, &row)
			if err != nil {
				return err
			}
			if payload {
				e.Disclosed = operjson.Disclose(&row.Envelope)
			}
			return a.print(e, func(t *table) {
				t.field("event", e.EventID)
				t.field("status", e.Status)
				t.field("waits because", e.Waits)
				t.field("the letter", deleted)
				t.fields(e.EventType, e.AggregateType, e.AggregateID, e.TenantID, e.Listener, e.OriginalID)
				t.field("occurred", e.OccurredAt)
				t.field("due", e.AvailableAt)
				t.field("died", e.DiedAt)
				t.field("ended", e.EndedAt)
				t.field("deletion", e.DeletionID)
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
	if d.Version > 1 {
		t.field("payload version", fmt.Sprint(d.Version))
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
