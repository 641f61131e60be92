package httptx

import (
	"errors"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// FuzzParameters: whatever the query, it is refused with an error that names a parameter,
// or each value is one that was given, fits its column and is in its range. The filter of
// a replay is never wider than the query.
func FuzzParameters(f *testing.F) {
	for _, seed := range []string{
		"", "limit=5", "limit=0", "limit=1&limit=2", "event_type=", "event_type=%00", "event_type=a&aggregate_type=b", "since=2026-01-02T03:04:05Z&until=2026-01-02T03:04:06%2B01:00",
		"since=0000-01-01T00:00:00Z", "after=2026-01-02T03:04:05Z,id", "after=,", "x=1", "a;b", "%zz", "pretty&limit=200",
	} {
		f.Add(seed)
	}
	known := append(slices.Clone(filterParameters), "limit", "after")
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.RawQuery = query
		p, err := parametersOf(r, known)
		filter, filterErr := p.filter()
		limit, limitErr := p.limit()
		if err := errors.Join(err, filterErr, limitErr); err != nil {
			var bad *parameterError
			require.ErrorAs(t, err, &bad)
			require.NotEmpty(t, bad.name)
			return
		}
		given, err := url.ParseQuery(query)
		require.NoError(t, err)
		require.Equal(t, given.Get("event_type"), string(filter.EventType))
		require.Equal(t, given.Get("aggregate_type"), string(filter.AggregateType))
		require.Equal(t, given.Has("since"), !filter.Since.IsZero())
		require.Equal(t, given.Has("until"), !filter.Until.IsZero())
		require.True(t, limit >= 1 && limit <= MaxAdminLimit)
		for name, value := range p {
			require.Equal(t, []string{value}, given[name])
			require.True(t, storable(value))
		}
	})
}

// FuzzID: an id that can be in the table comes back from a path, and from any other path
// comes one that the column takes, or "not found".
func FuzzID(f *testing.F) {
	f.Add("/dead-letters/01J", "01J")
	f.Add("/%2e%2e/%00", "../a b%2F")
	f.Add("", "\u4e2d")
	f.Fuzz(func(t *testing.T, path, id string) {
		if got, err := idOf(path); err != nil {
			require.ErrorIs(t, err, outbox.ErrNotFound)
		} else {
			require.NotEmpty(t, got)
			require.LessOrEqual(t, utf8.RuneCountInString(got), outbox.MaxEventIDLength)
			require.True(t, storable(got))
		}
		if id == "" || utf8.RuneCountInString(id) > outbox.MaxEventIDLength || !storable(id) {
			return
		}
		got, err := idOf("/admin/dead-letters/" + url.PathEscape(id))
		require.NoError(t, err)
		require.Equal(t, id, got)
	})
}
