package outbox

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// EventOrder is the order in which a [Store] lists the events that an [EventQuery] asks
// for.
type EventOrder uint8

// The orders; see [Outbox.FindEvents].
const (
	ByEventID EventOrder = iota // the greatest first
	ByDueTime                   // by available_at, created_at, event id, the earliest first
	ByEndTime                   // by done_at, then event id, the latest first
)

// Order is the order of the events that the filter chooses.
func (f EventFilter) Order() EventOrder {
	if len(f.Statuses) == 0 {
		return ByEventID
	}
	first := f.Statuses[0]
	for _, status := range f.Statuses {
		if status != first && (status.Terminal() || first.Terminal()) {
			return ByEventID
		}
	}
	if first.Terminal() {
		return ByEndTime
	}
	return ByDueTime
}

// Next is the text of the place of a page's last row, for [EventPage].Next. For [ByEndTime],
// AvailableAt is the time of the end, and zero for a row whose time cannot be read; what the
// order does not use may be zero.
func (o EventOrder) Next(place Cursor) string {
	text := fmt.Sprintf("%d.%d.%d.%s", o, place.AvailableAt.UnixMicro(), place.CreatedAt.UnixMicro(), place.EventID)
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// After is the place of such a text; empty: the start. It fails with a [FieldError] for
// another text, also for one of another order.
func (o EventOrder) After(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	refused := &FieldError{Field: "EventQuery.After", Problem: fmt.Sprintf("(%d bytes) is no place in this list; pass the Next of a page of the same filter, or nothing for the first page", len(text))}
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	parts := strings.SplitN(string(decoded), ".", 4)
	if err != nil || len(parts) != 4 || parts[0] != strconv.Itoa(int(o)) {
		return Cursor{}, refused
	}
	due, err1 := parseMicros(parts[1])
	created, err2 := parseMicros(parts[2])
	id := parts[3]
	if err1 != nil || err2 != nil || id == "" || !utf8.ValidString(id) || strings.ContainsRune(id, 0) || utf8.RuneCountInString(id) > MaxEventIDLength {
		return Cursor{}, refused
	}
	return Cursor{AvailableAt: due, CreatedAt: created, EventID: id}, nil
}

// parseMicros reads a time that a store can read, or the zero time.
func parseMicros(text string) (time.Time, error) {
	micros, err := strconv.ParseInt(text, 10, 64)
	at := time.UnixMicro(micros).UTC()
	if err == nil && !at.IsZero() && (at.Year() < 1 || at.Year() > maxYear) {
		err = strconv.ErrRange
	}
	return at, err
}
