package sqlstore

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

func TestDecodeHeaders(t *testing.T) {
	t.Parallel()
	s := Postgres()
	for text, want := range map[string]map[string]string{
		"": nil, "null": nil, "{}": nil, "{ }": nil,
		`{"a":"b"}`:                     {"a": "b"},
		`{"a": "b", "c": "d", "e": ""}`: {"a": "b", "c": "d", "e": ""},
		`{"a" :"b" ,"a":"c"} `:          {"a": "c"},
		`{"a":"\u00e9","é":"\""}`:       {"a": "é", "é": `"`},
		`{"a":"null"}`:                  {"a": "null"},
		`{"null":""}`:                   {"null": ""},
	} {
		got, err := s.decodeHeaders(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{`{"a":1}`, `{"a":null}`, `{"a":{"b":"c"}}`, `{"a":["b"]}`, `["a"]`, `"a"`, `1`, `true`, `{"a":`, `x`, `{"a":"b",}`, `{"a":"b"`, `{"a" "b"}`, `{"a":"b"}}`, `{x"a":"b"}`, `{"a":x"b"}`} {
		_, err := s.decodeHeaders(text)
		require.ErrorIs(t, err, errHeaders, text)
	}
}

func BenchmarkDecodeHeaders(b *testing.B) {
	s := Postgres()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.decodeHeaders(`{"trace": "0af7651916cd43dd8448eb211c80319c", "source": "api"}`); err != nil {
			b.Fatal(err)
		}
	}
}

// quoting is a codec whose errors quote its input, as some codecs do.
type quoting struct{}

func (quoting) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

func (quoting) Unmarshal(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w near %q", err, data)
	}
	return nil
}

func TestErrorsOfHeadersQuoteNothingOfThem(t *testing.T) {
	t.Parallel()
	for _, s := range []*Store{SQLite(), SQLite(WithCodec(quoting{}))} {
		for _, text := range []string{`{"secret":["secret"]}`, `{"secret":null}`, `{"secret":"null","other":1}`, `{"secret`} {
			_, err := s.decodeHeaders(text)
			require.ErrorIs(t, err, errHeaders)
			require.NotContains(t, err.Error(), "secret")
		}
	}
}

func FuzzDecodeHeaders(f *testing.F) {
	for _, seed := range []string{"", "null", `{"a":"b"}`, `{"a": "b", "c": "d"}`, `{"a":null}`, `{"a":1}`, `[]`, `{"null":"x"}`} {
		f.Add(seed)
	}
	s := SQLite()
	f.Fuzz(func(t *testing.T, text string) {
		headers, err := s.decodeHeaders(text)
		if err != nil {
			require.Nil(t, headers)
			return
		}
		// What decodes is a flat object of strings, and comes back the same.
		var loose map[string]any
		if text != "" && text != "null" {
			require.NoError(t, json.Unmarshal([]byte(text), &loose))
		}
		require.Len(t, headers, len(loose))
		for key, value := range loose {
			require.IsType(t, "", value)
			require.Equal(t, value, headers[key])
		}
	})
}

func TestTextArrayIsReadBack(t *testing.T) {
	t.Parallel()
	require.Equal(t, `{"a","","b\"c","\\","NULL","{,}"}`, textArray([]string{"a", "", `b"c`, `\`, "NULL", "{,}"}))
	require.Equal(t, `{}`, textArray(nil))
}

func TestReadingATimeOrANumberAllocatesNothing(t *testing.T) {
	var at timestamp
	var n count
	for _, src := range []any{[]byte("2026-01-02 03:04:05.678901"), "2026-01-02 03:04:05.678901", time.Unix(1, 0), int64(1e15)} {
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = at.Scan(src) }), "%T", src)
		require.False(t, at.IsZero(), "%T", src)
	}
	for _, src := range []any{[]byte("1234567"), "1234567", int64(1234567)} {
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = n.Scan(src) }), "%T", src)
		require.Equal(t, count(1234567), n, "%T", src)
	}
}

func TestAnArrayOfManyIdsIsWrittenWithOneAllocation(t *testing.T) {
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = fmt.Sprintf("01KXYZABCDEFGHJKMNPQRST%03d", i)
	}
	require.InDelta(t, 1, testing.AllocsPerRun(10, func() { _ = textArray(ids) }), 0)
}

// A batch keeps its texts, and the list in which its rows were read keeps none. The test is not
// parallel, because another read may get the list.
func TestAListOfReadRowsKeepsNoTexts(t *testing.T) {
	s := SQLite()
	now := timestamp{time.Now().UTC()}
	rows := make([]row, 2*aFewRows, 4*aFewRows)
	for i := range rows {
		rows[i] = row{
			id: fmt.Sprint("e-", i), eventType: sql.NullString{String: "Said", Valid: true},
			payload: sql.NullString{String: `"hello"`, Valid: true}, createdAt: now, availableAt: now,
		}
	}
	cut := rows[:aFewRows]
	b := s.batch(cut, outbox.Cursor{})
	require.Len(t, b.Envelopes, aFewRows)
	require.Equal(t, `"hello"`, b.Envelopes[3].Payload.String())
	require.Equal(t, make([]row, len(rows)), rows)
}
