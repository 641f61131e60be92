package jsontext_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/jsontext"
)

// FuzzSame: a text is the same as itself with other spaces, as any database may store it,
// and not the same as a text with another value in it.
func FuzzSame(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e3,true,null,"x"]}`, `1e400`, `0.10`, `"\ud83d"`, `[]`, `{"":{}}`, `1e99999999999`, `-0`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		var short, long bytes.Buffer
		require.NoError(t, json.Compact(&short, []byte(text)))
		require.NoError(t, json.Indent(&long, []byte(text), " ", "\t"))
		require.NoError(t, jsontext.Same(short.String(), long.String()))
		require.NoError(t, jsontext.Same(long.String(), short.String()))
		require.Error(t, jsontext.Same("["+text+"]", "["+text+",0]"))
		require.Error(t, jsontext.Same("["+text+",1]", "["+text+",2]"))
	})
}
