package sqlstore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var someTime = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// texts are valid JSON; refused lists the databases that reject them.
var texts = map[string]struct{ text, refused string }{
	"plain":                     {`{"a":[1,-2.5e3,true,null,"x"]}`, ""},
	"escapes":                   {`"\\ud800 \\ \" \n \u00e9 \u4e2d"`, ""},
	"surrogate pair":            {`"\ud83d\ude00"`, ""},
	"high surrogate alone":      {`"\ud83d"`, "postgres mysql"},
	"high surrogate then text":  {`"\ud83dx"`, "postgres mysql"},
	"two high surrogates":       {`"\ud83d\ud83d"`, "postgres mysql"},
	"low surrogate alone":       {`"\ude00"`, "postgres mysql"},
	"high then ordinary escape": {`"\ud83d\u0041"`, "postgres mysql"},
	"in a key":                  {`{"\ud83d":1}`, "postgres mysql"},
	"large number":              {`1e200`, ""},
	"number beyond a double":    {`1e400`, "mysql"},
	"largest double":            {`1.7976931348623157e308`, ""},
	"smallest double":           {`5e-324`, ""},
	"long and small double":     {`1.2345678901234567e-290`, ""},
	"number beyond numeric":     {`[1e400000]`, "postgres mysql"},
	"tiny number":               {`1e-400000`, "postgres mysql"},
	"huge exponent":             {`1e99999999999999999999`, "postgres mysql"},
	"31 levels":                 {nested(31), ""},
	"32 levels":                 {nested(32), "mysql"},
	"brackets in a string":      {`"` + nested(99) + `"`, ""},
	"5000 levels":               {nested(5000), "mysql"},
}

func TestTextsThatADatabaseRefusesAreRefusedBefore(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store := storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		for name, tc := range texts {
			require.True(t, json.Valid([]byte(tc.text)), name)
			env := outbox.Envelope{EventID: name, EventType: "T", Payload: outbox.RawJSON(tc.text), OccurredAt: someTime, AvailableAt: someTime}
			err := store.CheckEnvelope(env)
			if strings.Contains(tc.refused, string(db.Kind)) {
				require.ErrorIs(t, err, outbox.ErrInvalidEnvelope, name)
				require.ErrorContains(t, err, "Envelope.Payload", name)
				continue
			}
			require.NoError(t, err, name)
			require.NoError(t, store.Insert(t.Context(), db.DB, []outbox.Envelope{env}, "", time.Time{}), "%s: the check lets pass what the database refuses", name)
		}
	})
}

// Ids that the database would treat as equal are refused, and no others.
func TestIDsThatADatabaseTakesForOneAnother(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store := storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		for _, id := range []string{"id", "id ", " id", "ID", "i\u0064\u0301", "\u00ed", "i", "id\t"} {
			env := outbox.Envelope{EventID: id, EventType: "T", Payload: outbox.RawJSON("1"), OccurredAt: someTime, AvailableAt: someTime}
			if err := store.CheckEnvelope(env); err != nil {
				require.Equal(t, testdb.MySQL, db.Kind)
				require.Equal(t, "id ", id)
				require.ErrorContains(t, err, "Envelope.EventID ends with a space")
				continue
			}
			require.NoError(t, store.Insert(t.Context(), db.DB, []outbox.Envelope{env}, "", time.Time{}), "%q", id)
		}
	})
}

func BenchmarkCheckEnvelope(b *testing.B) {
	env := outbox.Envelope{Payload: outbox.RawJSON(`{"order":"` + strings.Repeat("x", 180) + `","n":12}`)}
	store := sqlstore.Postgres()
	b.ReportAllocs()
	for b.Loop() {
		if err := store.CheckEnvelope(env); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzCheckEnvelope: the checks agree with encoding/json about depth and about halves of
// surrogate pairs, spaces make no difference, SQLite takes all, and no error quotes the
// text.
func FuzzCheckEnvelope(f *testing.F) {
	for _, tc := range texts {
		f.Add(tc.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) || !utf8.ValidString(text) { // sealing refuses it before
			return
		}
		check := func(s *sqlstore.Store, text string) error {
			return s.CheckEnvelope(outbox.Envelope{Payload: outbox.RawJSON(text)})
		}
		require.NoError(t, check(sqlstore.SQLite(), text))
		depth, replaced := shape(t, text)
		var spaced bytes.Buffer
		require.NoError(t, json.Indent(&spaced, []byte(text), "", " "))
		for _, s := range []*sqlstore.Store{sqlstore.Postgres(), sqlstore.MySQL()} {
			err := check(s, text)
			require.Equal(t, err, check(s, spaced.String()))
			var problem string
			if err != nil {
				var field *outbox.FieldError
				require.ErrorAs(t, err, &field)
				problem = field.Problem
				require.Less(t, len(problem), 200)
			}
			if s.Dialect() == "mysql" && err == nil {
				require.Less(t, depth, 32)
			}
			if strings.Contains(problem, "levels deep") {
				require.Greater(t, depth, 31)
			}
			if err == nil && replaced { // a half that encoding/json replaced, or the character itself
				require.Regexp(t, `\x{FFFD}|(?i)\\ufffd`, text)
			}
			if strings.Contains(problem, "surrogate") {
				require.True(t, replaced)
			}
		}
	})
}

// shape is how deep a JSON text is nested, and whether one of its strings has the
// character that stands for half of a surrogate pair.
func shape(t *testing.T, text string) (deepest int, replaced bool) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	for depth := 0; ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return deepest, replaced
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case json.Delim:
			if token == '{' || token == '[' {
				depth++
				deepest = max(deepest, depth)
			} else {
				depth--
			}
		case string:
			replaced = replaced || strings.Contains(token, "\uFFFD")
		}
	}
}
