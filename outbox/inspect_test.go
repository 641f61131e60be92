package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func inspected(t *testing.T, purge *outbox.PurgeOptions) (*outbox.Outbox, *outboxtest.Store) {
	t.Helper()
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Purge: purge})
	require.NoError(t, err)
	return ob, store
}

func insertRow(t *testing.T, store *outboxtest.Store, env outbox.Envelope, row outboxtest.RawRow) {
	t.Helper()
	env.EventType, env.Payload = "T", outbox.RawJSON("{}")
	require.NoError(t, store.Insert(t.Context(), nil, []outbox.Envelope{env}, "", time.Time{}))
	require.True(t, store.SetRow(env.EventID, row))
}

func TestWhatAPersonTypedIsChecked(t *testing.T) {
	t.Parallel()
	ob, _ := inspected(t, nil)
	for want, q := range map[string]outbox.EventQuery{
		"EventQuery.Limit is 501; it must be from 1 to 500, or zero for 50":  {Limit: 501},
		"EventQuery.Limit is -1; it must be from 1 to 500, or zero for 50":   {Limit: -1},
		"EventFilter.AggregateID holds a NUL character":                      {EventFilter: outbox.EventFilter{AggregateID: "\x00"}},
		"EventFilter.Statuses has 7; statuses are NEW, RETRY, DONE and DEAD": {EventFilter: outbox.EventFilter{Statuses: []outbox.Status{7}}},
		"EventQuery.After (3 bytes) is no place in this list":                {After: "abc"},
	} {
		_, err := ob.FindEvents(t.Context(), q)
		field := (*outbox.FieldError)(nil)
		require.ErrorAs(t, err, &field)
		require.ErrorContains(t, err, want)
	}
	_, err := ob.FindEvent(t.Context(), "\x00")
	require.ErrorContains(t, err, "FindEvent.eventID holds a NUL character")
	_, err = ob.FindEvent(t.Context(), "none")
	require.ErrorIs(t, err, outbox.ErrNotFound)
}

func TestAPageHasFiftyEventsByDefault(t *testing.T) {
	t.Parallel()
	ob, store := inspected(t, nil)
	envs := make([]outbox.Envelope, 51)
	for i := range envs {
		envs[i] = outbox.Envelope{EventID: string(rune('A'+i/26)) + string(rune('a'+i%26)), EventType: "T", Payload: outbox.RawJSON("{}")}
	}
	require.NoError(t, store.Insert(t.Context(), nil, envs, "", time.Time{}))
	page, err := ob.FindEvents(t.Context(), outbox.EventQuery{})
	require.NoError(t, err)
	require.Len(t, page.Rows, outbox.DefaultFindLimit)
	page, err = ob.FindEvents(t.Context(), outbox.EventQuery{After: page.Next})
	require.NoError(t, err)
	require.Len(t, page.Rows, 1)
	require.Empty(t, page.Next)
}

func TestTheRowOfAListenerNamesIt(t *testing.T) {
	t.Parallel()
	ob, store := inspected(t, nil)
	insertRow(t, store, outbox.Envelope{
		EventID: "row", Headers: map[string]string{outbox.HeaderListener: "mail", outbox.HeaderEventID: "event", "source": "api"},
	}, outboxtest.RawRow{Status: outbox.StatusRetry})
	row, err := ob.FindEvent(t.Context(), "row")
	require.NoError(t, err)
	require.Equal(t, []string{"row", "mail", "event"}, []string{row.EventID, row.Listener, row.OriginalID})
	require.Equal(t, map[string]string{"source": "api"}, row.Headers)
	page, err := ob.FindEvents(t.Context(), outbox.EventQuery{})
	require.NoError(t, err)
	listed := page.Rows[0]
	require.Equal(t, []string{"row", "mail", "event"}, []string{listed.EventID, listed.Listener, listed.OriginalID})
	require.Nil(t, listed.Headers, "a listing has no headers")
}

func TestThroughputIsThatOfTheLastMinute(t *testing.T) {
	t.Parallel()
	ob, store := inspected(t, nil)
	now := time.Now().UTC()
	for id, ago := range map[string]time.Duration{"old": 61 * time.Second, "recent": 50 * time.Second} {
		insertRow(t, store, outbox.Envelope{EventID: id}, outboxtest.RawRow{Status: outbox.StatusDone, DoneAt: now.Add(-ago), AvailableAt: now.Add(-ago - time.Second)})
	}
	got, err := ob.Throughput(t.Context())
	require.NoError(t, err)
	require.Equal(t, outbox.Throughput{Done: 1, Median: time.Second, P95: time.Second, Max: time.Second}, got)
}

func TestPurgeDeletesOldRowsNow(t *testing.T) {
	t.Parallel()
	ob, store := inspected(t, &outbox.PurgeOptions{Retention: time.Hour, BatchSize: 1})
	now := time.Now().UTC()
	for id, ago := range map[string]time.Duration{"a": 2 * time.Hour, "b": 3 * time.Hour, "c": time.Minute} {
		insertRow(t, store, outbox.Envelope{EventID: id}, outboxtest.RawRow{Status: outbox.StatusDone, DoneAt: now.Add(-ago)})
	}
	n, err := ob.Purge(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	_, there := store.Row("c")
	require.True(t, there)

	without, _ := inspected(t, nil)
	_, err = without.Purge(t.Context())
	require.EqualError(t, err, "outbox: Config.Purge is nil, so nothing says which rows are old; set PurgeOptions")
}
