package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/outbox"
)

// filter is the flags that choose events.
type filter struct {
	eventType, aggregateType, aggregateID, tenantID, since, until string
}

func (f *filter) register(cmd *cobra.Command, times string) {
	flags := cmd.Flags()
	flags.StringVar(&f.eventType, "event-type", "", "only events of this type")
	flags.StringVar(&f.aggregateType, "aggregate-type", "", "only events of this aggregate type")
	flags.StringVar(&f.aggregateID, "aggregate-id", "", "only events of this aggregate")
	flags.StringVar(&f.tenantID, "tenant", "", "only events of this tenant")
	flags.StringVar(&f.since, "since", "", times+" at this time or later: 2006-01-02T15:04:05Z, or 2h for two hours ago")
	flags.StringVar(&f.until, "until", "", times+" before this time, as for --since")
}

// isEmpty reports whether no flag is given.
func (f *filter) isEmpty() bool { return *f == filter{} }

// check reports texts that no event can have, and reads the times.
func (f *filter) check(now time.Time) (since, until time.Time, err error) {
	for _, text := range []struct {
		flag, value string
		limit       int
	}{
		{"--event-type", f.eventType, outbox.MaxEventTypeLength},
		{"--aggregate-type", f.aggregateType, outbox.MaxAggregateTypeLength},
		{"--aggregate-id", f.aggregateID, outbox.MaxAggregateIDLength},
		{"--tenant", f.tenantID, outbox.MaxTenantIDLength},
	} {
		if err := checkText(text.flag, text.value, text.limit); err != nil {
			return since, until, err
		}
	}
	if since, err = parseTime("--since", f.since, now); err != nil {
		return since, until, err
	}
	if until, err = parseTime("--until", f.until, now); err != nil {
		return since, until, err
	}
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return since, until, &usageError{"--until", "is not after --since"}
	}
	return since, until, nil
}

// checkText reports a text that no column can hold.
func checkText(flag, value string, limit int) error {
	if n := utf8.RuneCountInString(value); n > limit {
		return &usageError{flag, fmt.Sprintf("is %d characters long; the limit is %d", n, limit)}
	}
	if !utf8.ValidString(value) || strings.Contains(value, "\x00") {
		return &usageError{flag, "is not UTF-8, or contains a NUL"}
	}
	return nil
}

// parseTime reads a time, or a duration before now.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, &usageError{flag, fmt.Sprintf("is a text of %d bytes; it must be a time like 2006-01-02T15:04:05Z, or a duration before now like 2h", len(text))}
	}
	if year := t.UTC().Year(); year < 1000 || year > 9999 {
		return t, &usageError{flag, "has the year " + strconv.Itoa(year) + "; it must be from 1000 to 9999"}
	}
	return t.UTC(), nil
}

// checkCount reports a number out of range.
func checkCount(flag string, n, most int) error {
	if n < 1 || n > most {
		return &usageError{flag, fmt.Sprintf("is %d; it must be from 1 to %d", n, most)}
	}
	return nil
}

// events returns the filter of a listing of events.
func (f *filter) events(now time.Time) (outbox.EventFilter, error) {
	since, until, err := f.check(now)
	return outbox.EventFilter{
		EventType: outbox.EventType(f.eventType), AggregateType: outbox.AggregateType(f.aggregateType),
		AggregateID: f.aggregateID, TenantID: f.tenantID, Since: since, Until: until,
	}, err
}

// groupID is the form of outbox.DeadGroup.ID.
var groupID = regexp.MustCompile(`^[0-9a-v]{16}$`)

// dead returns the filter of dead letters.
func (f *filter) dead(group string, now time.Time) (outbox.DeadFilter, error) {
	if group != "" && !groupID.MatchString(group) {
		return outbox.DeadFilter{}, &usageError{"--group", fmt.Sprintf("is a text of %d bytes; it must be a group that outbox dead groups lists", len(group))}
	}
	since, until, err := f.check(now)
	return outbox.DeadFilter{
		EventType: outbox.EventType(f.eventType), AggregateType: outbox.AggregateType(f.aggregateType),
		AggregateID: f.aggregateID, TenantID: f.tenantID, Group: group, Since: since, Until: until,
	}, err
}
