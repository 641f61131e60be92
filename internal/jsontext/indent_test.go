package jsontext_test

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/jsontext"
)

var texts = []string{
	`null`, `12`, `"a"`, `[]`, `{}`, `[ ]`, `{"a":[]}`, `[{},[],{"a":{}}]`, `{"a":1,"b":[1,2,{"c":"d"}],"e":{"f":null}}`,
	`{"a b":" x , y : { } [ ] \" \\ ","ü":"é"}`, "[1,\n\t 2 ]", `"\\"`, `["\\\""]`,
}

func TestIndentWritesWhatEncodingJSONWrites(t *testing.T) {
	t.Parallel()
	for _, text := range texts {
		var want bytes.Buffer
		require.NoError(t, json.Indent(&want, []byte(text), "", "  "))
		got, whole := jsontext.Indent([]byte(text), 1<<20)
		require.True(t, whole)
		require.Equal(t, want.String(), string(got))
	}
}

func TestIndentStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 4000) + strings.TrimSuffix(strings.Repeat("0,", 500_000), ",") + strings.Repeat("]", 4000)
	for _, text := range []string{deep, strings.Repeat("[", 1<<20), `"` + strings.Repeat("é", 1<<20), `{"a":` + strings.Repeat(`{"a":`, 5000)} {
		for _, limit := range []int{0, 1, 1000, 1001, 1 << 16} {
			got, whole := jsontext.Indent([]byte(text), limit)
			require.False(t, whole)
			require.LessOrEqual(t, len(got), limit)
			require.GreaterOrEqual(t, len(got), limit-1)
			require.True(t, utf8.Valid(got))
		}
	}
	text := `{"a":[1,2],"b":"é"}`
	all, _ := jsontext.Indent([]byte(text), 1000)
	for limit := range all {
		got, whole := jsontext.Indent([]byte(text), limit)
		require.False(t, whole)
		require.True(t, bytes.HasPrefix(all, got))
	}
	_, whole := jsontext.Indent([]byte(text), len(all))
	require.True(t, whole)
}

// A text of 1 MB must not take more memory than a few times its limit.
func TestIndentTakesNoMoreMemoryThanItsLimit(t *testing.T) {
	text := []byte(strings.Repeat("[", 9000) + strings.TrimSuffix(strings.Repeat("0,", 500_000), ",") + strings.Repeat("]", 9000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	jsontext.Indent(text, 1<<16)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func FuzzIndent(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, whole := jsontext.Indent(text, 1<<12)
		require.LessOrEqual(t, len(got), 1<<12)
		if whole && json.Valid(text) {
			var want bytes.Buffer
			require.NoError(t, json.Indent(&want, bytes.TrimSpace(text), "", "  "))
			require.Equal(t, want.String(), string(got))
		}
	})
}
