package sqlstore

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// FuzzTextArray: a reader of PostgreSQL's array literals finds the same texts again.
func FuzzTextArray(f *testing.F) {
	f.Add("a", "")
	f.Add(`b"c\`, "NULL")
	f.Add("{,}", `"},{"`)
	f.Fuzz(func(t *testing.T, a, b string) {
		require.Equal(t, []string{a, b, a}, readArray(t, textArray([]string{a, b, a})))
	})
}

// readArray reads a one-dimensional array literal whose elements are all quoted, by the
// rules of PostgreSQL's manual.
func readArray(t *testing.T, literal string) (items []string) {
	t.Helper()
	rest, ok := strings.CutPrefix(literal, "{")
	for ok && rest != "}" {
		rest, ok = strings.CutPrefix(strings.TrimPrefix(rest, ","), `"`)
		require.True(t, ok, literal)
		var item strings.Builder
		for rest[0] != '"' {
			rest = strings.TrimPrefix(rest, `\`)
			item.WriteByte(rest[0])
			rest = rest[1:]
		}
		items, rest = append(items, item.String()), rest[1:]
	}
	require.True(t, ok, literal)
	return items
}

// FuzzTimestamp: any text from a driver is a time in UTC, or an error, and each time that
// an envelope may have is read back from the text of MySQL's DATE_FORMAT.
func FuzzTimestamp(f *testing.F) {
	f.Add("2026-01-02 03:04:05.678901", int64(0))
	f.Add("0000-00-00 00:00:00.000000", int64(-30610224000000000))
	f.Add("", int64(253402300799999999))
	f.Fuzz(func(t *testing.T, text string, micros int64) {
		var ts timestamp
		if ts.Scan([]byte(text)) == nil {
			require.Equal(t, time.UTC, ts.Location())
			var again timestamp
			require.NoError(t, again.Scan(ts.Format("2006-01-02 15:04:05.999999999")))
			require.Equal(t, ts, again)
		}
		want := time.UnixMicro(micros).UTC()
		require.NoError(t, ts.Scan(micros))
		require.Equal(t, want, ts.Time)
		if want.Year() >= 1000 && want.Year() <= 9999 {
			require.NoError(t, ts.Scan(want.Format("2006-01-02 15:04:05.000000")))
			require.Equal(t, want, ts.Time)
		}
	})
}

// FuzzServerVersion: what a server says it is leads to at most one dialect, and only a
// text with digits leads to one that has to be asked again.
func FuzzServerVersion(f *testing.F) {
	for _, seed := range []string{"PostgreSQL 18.1 on x86_64", "11.8.3-MariaDB-log", "8.0.11-TiDB-v8.5.0", "8.4.6", "5.7", "CockroachDB CCL v25.1", "", "SQLite"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, version string) {
		d, ask := dialectFor(version)
		switch {
		case ask:
			require.Nil(t, d)
			require.True(t, version[0] >= '0' && version[0] <= '9')
			require.Contains(t, version, ".")
		case d == postgres:
			require.True(t, strings.HasPrefix(version, "PostgreSQL "))
		case d != nil:
			require.True(t, strings.Contains(version, "MariaDB") || strings.Contains(version, "TiDB"))
		}
	})
}

func TestOnlyAVersionThatIsANumberMayBeMySQL(t *testing.T) {
	t.Parallel()
	for version, may := range map[string]bool{
		"8.4.6": true, "5.7": true, "10.11-log": true,
		"": false, "8": false, "8.": false, ".4": false, "8.x": false, "8,4": false, "+8.4": false, "-8.4": false, " 8.4": false, "v8.4": false,
		"CockroachDB CCL v25.1": false,
	} {
		d, maybe := dialectFor(version)
		require.Nil(t, d, version)
		require.Equal(t, may, maybe, version)
	}
}

// FuzzPauseValue: the value of a paused kind's row is read back, and any other value is
// an error that quotes nothing of it, or a pause.
func FuzzPauseValue(f *testing.F) {
	f.Add(`{"aggregate_type":"Order","event_type":"Paid","since":"2026-01-02T03:04:05Z"}`, "Order", "Paid")
	f.Add(`{"since":"yesterday"}`, "", "")
	f.Add(``, `"`, "\u2028")
	f.Fuzz(func(t *testing.T, value, aggregate, event string) {
		if _, err := readPause("name", value); err != nil {
			require.Contains(t, err.Error(), "delete it, and pause the kind again")
		}
		if !utf8.ValidString(aggregate) || !utf8.ValidString(event) {
			return // Pause refuses it
		}
		since := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		text, err := json.Marshal(pauseRow{Since: since})
		require.NoError(t, err)
		pause, err := readPause("name", strings.Replace(strings.Replace(string(text), `"aggregate_type":""`, `"aggregate_type":`+quoted(t, aggregate), 1), `"event_type":""`, `"event_type":`+quoted(t, event), 1))
		require.NoError(t, err)
		require.Equal(t, aggregate, string(pause.Kind.AggregateType))
		require.Equal(t, event, string(pause.Kind.EventType))
		require.Equal(t, since, pause.Since)
	})
}

// FuzzRangesValue: ranges are read back from the text in which they are stored, and any other value
// of the row is an error that quotes nothing of the value, or ranges.
func FuzzRangesValue(f *testing.F) {
	f.Add(`[{"n":"node/1","a":{"a":1,"c":2,"e":"x"},"t":3}]`, "node/1", "id", int64(1), int64(-62135596800000000))
	f.Add(`{"n":1}`, "", "", int64(0), int64(0))
	f.Add(`null`, `"`, "\u2028", int64(253402300799999999), int64(1))
	f.Fuzz(func(t *testing.T, value, name, id string, available, created int64) {
		ranges, err := readRanges(value)
		if err != nil {
			require.Contains(t, err.Error(), "delete the row")
			require.Nil(t, ranges)
		}
		if !utf8.ValidString(name) || !utf8.ValidString(id) {
			return // no column has such a text
		}
		place := outbox.Cursor{AvailableAt: microTime(available), CreatedAt: microTime(created), EventID: id}
		if place.IsZero() {
			place = outbox.Cursor{}
		}
		want := []outbox.Range{
			{Name: name, Upto: place, Until: microTime(created)},
			{Name: name, After: place, Until: microTime(available)},
		}
		text, err := writeRanges(want)
		require.NoError(t, err)
		got, err := readRanges(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func quoted(t *testing.T, s string) string {
	t.Helper()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	return string(text)
}
