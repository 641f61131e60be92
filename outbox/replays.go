package outbox

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/ulid"
)

// Limits of the replays of delivered events; see [Outbox.StartReplay].
const (
	// MaxReplays is how many replays the table has at most. A new replay displaces the replay that was done
	// first, or else the replay that was stopped first. While all of them run, no further replay starts.
	MaxReplays = 20
	// MaxReplayName is the most characters of a name.
	MaxReplayName = 64
	// MaxReplayTypes is how many event types a replay may have.
	MaxReplayTypes = 20
	// DefaultReplayRate and MaxReplayRate are for [Replay].Rate.
	DefaultReplayRate = 100
	MaxReplayRate     = 500
)

// Replay chooses delivered events, and the listener that gets these events again; see
// [Outbox.StartReplay].
type Replay struct {
	// Name identifies the replay: a single line of at most [MaxReplayName] characters. Required.
	Name string
	// Listener is the name of the listener that gets the events, as [Named] gives it. Required: a listener
	// without a name cannot get events that the other listeners do not get.
	Listener string
	// AggregateType and EventTypes are the kinds of the events. An empty aggregate type is [Global].
	// EventTypes has at least 1, at most [MaxReplayTypes].
	AggregateType AggregateType
	EventTypes    []EventType
	// AggregateID and TenantID choose the events of an aggregate or a tenant. Empty: of all.
	AggregateID string
	TenantID    string
	// Since and Until bound the time at which the events were delivered, by the database's clock:
	// Since <= delivered < Until. Zero: from the oldest row that is kept, and until StartReplay is called.
	// Until is not in the future.
	Since, Until time.Time
	// Rate is how many events become due in a second, in all processes together. Defaults to
	// [DefaultReplayRate]; at most [MaxReplayRate].
	Rate int
	// Reason says to operators why the events are replayed, and By who started the replay. Each is a single
	// line of at most [MaxPauseReason] and [MaxPauseBy] characters, and may be empty.
	Reason, By string
}

// ReplayState is the state of a replay.
type ReplayState string

// The states of a replay.
const (
	ReplayRunning ReplayState = "running"
	ReplayStopped ReplayState = "stopped" // by [Outbox.StopReplay]; [Outbox.ContinueReplay] goes on
	ReplayDone    ReplayState = "done"    // all events were added, and each of them was tried
)

// ReplayStatus is a replay, and how far the replay came.
type ReplayStatus struct {
	Replay
	State ReplayState
	// Started is when the replay started, Moved is when it last moved or changed its state, and Place is the
	// time of delivery up to which events were added, by the database's clock. Place is zero before the
	// first step.
	Started, Moved, Place time.Time
	// Looked is how many delivered rows were looked at, Added how many events were added for the listener,
	// and Unreadable how many of the chosen events were left out because their rows cannot be read.
	Looked, Added, Unreadable int64
	// Progress is when the replay last made progress: it started or continued, or moved without all of the
	// events that were added last having failed. A running replay without progress is stuck, or its listener
	// fails; see [Stats].ReplayProgressAge.
	Progress time.Time
	// Waiting is how many of the events that were added last have not been tried yet. While Waiting is not
	// zero, a running replay adds no events. Of a replay that does not run, Waiting is zero.
	Waiting int
	// Failed is how many of the events that were added last have failed, and not been delivered since.
	// LastError is the error of such an event.
	Failed    int
	LastError string
	// Problem says why the row of the replay cannot be read; empty: no problem. The other fields are then
	// zero.
	Problem string
}

// ErrReplayExists is the error of [Outbox.StartReplay] if the table has a replay of this name already,
// whatever its state. Choose another name; [Outbox.ContinueReplay] continues a replay that was stopped.
var ErrReplayExists = errors.New("outbox: a replay of this name exists; choose another name, or continue the replay if it was stopped")

// settled is how old a delivery must be before a replay looks at it: a row may become visible later than
// the time of delivery in it says, because a transaction stores both.
const settled = time.Minute

// Validate reports everything that [Outbox.StartReplay] would refuse without asking the database, each as a
// [FieldError]. Until is compared with the clock of this process.
func (r Replay) Validate() error { return r.prepare(time.Now()) }

// prepare fills in the defaults and checks the replay, now by the database's clock.
func (r *Replay) prepare(now time.Time) error {
	r.AggregateType, r.Rate = orGlobal(r.AggregateType), defaultTo(r.Rate, DefaultReplayRate)
	r.EventTypes = slices.Clone(r.EventTypes)
	if r.Until.IsZero() {
		r.Until = now
	}
	r.Until = storedTime(r.Until)
	if !r.Since.IsZero() {
		r.Since = storedTime(r.Since)
	}
	v := validator{what: "Replay"}
	r.validateNames(&v)
	v.text("AggregateType", string(r.AggregateType), MaxAggregateTypeLength)
	r.validateTypes(&v)
	v.text("AggregateID", r.AggregateID, MaxAggregateIDLength)
	v.text("TenantID", r.TenantID, MaxTenantIDLength)
	if r.Rate < 1 || r.Rate > MaxReplayRate {
		v.add("Rate", fmt.Sprintf("is %d; it must be from 1 to %d, or zero for %d", r.Rate, MaxReplayRate, DefaultReplayRate))
	}
	v.time("Until", r.Until)
	switch {
	case r.Until.After(now):
		v.add("Until", "is in the future by the database's clock; a replay is for events that were delivered before it starts. Leave Until out for all of them")
	case !r.Since.Before(r.Until):
		v.add("Until", "is not after Since")
	}
	if !r.Since.IsZero() {
		v.time("Since", r.Since)
	}
	v.line("Reason", r.Reason, MaxPauseReason)
	v.line("By", r.By, MaxPauseBy)
	return v.err()
}

func (r *Replay) validateNames(v *validator) {
	if strings.TrimSpace(r.Name) == "" {
		v.add("Name", "is required: operators stop and continue the replay by this name")
	}
	v.line("Name", r.Name, MaxReplayName)
	if r.Listener == "" {
		v.add("Listener", "is required: a replay is for a single listener that has a name. Give the listener a name with outbox.Named where it is registered, as in topic.Listen(fn, outbox.Named(\"billing\"))")
	}
	v.line("Listener", r.Listener, maxListenerNameLength)
}

func (r *Replay) validateTypes(v *validator) {
	if n := len(r.EventTypes); n == 0 || n > MaxReplayTypes {
		v.add("EventTypes", fmt.Sprintf("has %d event types; it must have from 1 to %d", n, MaxReplayTypes))
		return
	}
	for i, eventType := range r.EventTypes {
		if eventType == "" {
			v.add("EventTypes", "has an empty event type")
		}
		v.text("EventTypes", string(eventType), MaxEventTypeLength)
		if slices.Contains(r.EventTypes[:i], eventType) {
			v.add("EventTypes", fmt.Sprintf("has %.128q twice", eventType))
		}
	}
}

// target names the replay in the audit log. The value of the tenant is left out.
func (r *Replay) target() string {
	types := make([]string, len(r.EventTypes))
	for i, eventType := range r.EventTypes {
		types[i] = url.QueryEscape(string(eventType))
	}
	given := []string{
		"replay=" + url.QueryEscape(r.Name), "listener=" + url.QueryEscape(r.Listener),
		"aggregate_type=" + url.QueryEscape(string(r.AggregateType)), "event_type=" + strings.Join(types, ","),
	}
	if r.AggregateID != "" {
		given = append(given, "aggregate_id="+url.QueryEscape(r.AggregateID))
	}
	if r.TenantID != "" {
		given = append(given, hiddenTenant)
	}
	if !r.Since.IsZero() {
		given = append(given, "since="+r.Since.Format(time.RFC3339Nano))
	}
	given = append(given, "until="+r.Until.Format(time.RFC3339Nano), "rate="+strconv.Itoa(r.Rate))
	return strings.Join(given, "&")
}

// replayRow is the value of the row of a replay.
type replayRow struct {
	// ID differs for each replay, also for replays of the same name, one after the other.
	ID            string        `json:"id"`
	Name          string        `json:"name"`
	Listener      string        `json:"listener"`
	AggregateType AggregateType `json:"aggregate_type"`
	EventTypes    []EventType   `json:"event_types"`
	AggregateID   string        `json:"aggregate_id,omitempty"`
	TenantID      string        `json:"tenant_id,omitempty"`
	Since         time.Time     `json:"since"`
	Until         time.Time     `json:"until"`
	Rate          int           `json:"rate"`
	Reason        string        `json:"reason,omitempty"`
	By            string        `json:"by,omitempty"`

	State      ReplayState `json:"state"`
	Started    time.Time   `json:"started"`
	Moved      time.Time   `json:"moved"`
	Progress   time.Time   `json:"progress,omitzero"` // zero: an older version stored the row
	DoneAt     time.Time   `json:"done_at"`           // with DoneID the place of the last row that was looked at
	DoneID     string      `json:"done_id,omitempty"`
	Looked     int64       `json:"looked,omitempty"`
	Added      int64       `json:"added,omitempty"`
	Unreadable int64       `json:"unreadable,omitempty"`
	// Last are the ids of the rows that were added last.
	Last []string `json:"last,omitempty"`
}

// firstDone is before each time of delivery that a database stores.
var firstDone = time.Date(minYear, 1, 1, 0, 0, 0, 0, time.UTC)

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// newReplayRow is the row of a replay that starts.
func newReplayRow(r *Replay, now time.Time) replayRow {
	return replayRow{
		ID: ulid.New(now), Name: r.Name, Listener: r.Listener, AggregateType: r.AggregateType, EventTypes: r.EventTypes,
		AggregateID: r.AggregateID, TenantID: r.TenantID, Since: r.Since, Until: r.Until, Rate: r.Rate, Reason: r.Reason, By: r.By,
		State: ReplayRunning, Started: now, Moved: now, Progress: now, DoneAt: later(r.Since, firstDone),
	}
}

// readReplay reads the value of a row.
func readReplay(value string) (replayRow, error) {
	var row replayRow
	if err := json.Unmarshal([]byte(value), &row); err != nil {
		return row, fmt.Errorf("the row of a replay cannot be read: %w", err)
	}
	if row.ID == "" || row.Name == "" || row.Rate < 1 {
		return row, errors.New("the row of a replay cannot be read: it has no id, no name or no rate")
	}
	row.Rate = min(row.Rate, MaxReplayRate)
	return row, nil
}

// stored is the row as a store keeps it, with a version of its own.
func (r replayRow) stored(now time.Time) (ReplayRow, error) {
	value, err := json.Marshal(r)
	return ReplayRow{Name: r.Name, Version: ulid.New(now), Value: string(value)}, err
}

// progress is when the replay last made progress.
func (r *replayRow) progress() time.Time {
	if r.Progress.IsZero() {
		return r.Moved
	}
	return r.Progress
}

// status is the row for operators.
func (r *replayRow) status() ReplayStatus {
	s := ReplayStatus{
		Replay: Replay{
			Name: r.Name, Listener: r.Listener, AggregateType: r.AggregateType, EventTypes: r.EventTypes, AggregateID: r.AggregateID, TenantID: r.TenantID,
			Since: r.Since, Until: r.Until, Rate: r.Rate, Reason: r.Reason, By: r.By,
		},
		State: r.State, Started: r.Started, Moved: r.Moved, Progress: r.progress(), Looked: r.Looked, Added: r.Added, Unreadable: r.Unreadable,
	}
	if r.Looked > 0 {
		s.Place = r.DoneAt
	}
	return s
}

// replayedRowID is the id of the row for an event of a replay. The id differs from that of the row which
// the first delivery may have left for the listener, and from those of other replays.
func replayedRowID(eventID, listener, replayID string) string {
	sum := sha256.Sum256([]byte(eventID + "\x00" + listener + "\x00" + replayID)) // none contains a NUL
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20])
}

// rows are the rows for events. The rows become due in the order in which the events occurred, a
// microsecond apart, so that OrderedByKey and Ordered deliver them in this order.
func (r *replayRow) rows(events []Envelope, now time.Time) []Envelope {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b Envelope) int {
		if c := a.OccurredAt.Compare(b.OccurredAt); c != 0 {
			return c
		}
		return strings.Compare(a.EventID, b.EventID)
	})
	rows := make([]Envelope, len(events))
	for i := range events {
		row := rowFor(&events[i], r.Listener)
		row.EventID = replayedRowID(events[i].EventID, r.Listener, r.ID)
		row.AvailableAt, row.Attempts = now.Add(time.Duration(i)*time.Microsecond), 0
		rows[i] = *row
	}
	return rows
}
