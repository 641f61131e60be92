package main_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestAPayloadOfBytesIsShown(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	env := envelope("bytes")
	env.Payload = outbox.Bytes("application/protobuf", strings.Repeat("\x00\xff", 40)).WithVersion(3)
	s.insert(t, env)
	text := ok(t, s.DSN, "events", "show", "bytes", "--payload")
	require.Contains(t, text, "application/protobuf")
	require.Regexp(t, `payload version: +3\n`, text)
	require.Contains(t, text, "80 bytes: "+strings.Repeat("00ff", 32)+"…\n")
	text = ok(t, s.DSN, "events", "show", "bytes", "--payload", "--json")
	require.Contains(t, text, strings.Trim(env.Payload.String(), `"`))
	require.Contains(t, text, "payload_base64")
}

// A table makes all cells of a column as wide as the widest, and indentation makes each line
// as long as the text is deep.
func TestWhatIsPrintedIsNotMuchLongerThanTheEvent(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	deep := strings.Repeat("[", 4000) + strings.TrimSuffix(strings.Repeat("0,", 500_000), ",") + strings.Repeat("]", 4000)
	env := envelope("large")
	env.Payload = outbox.RawJSON(deep)
	env.Headers = map[string]string{strings.Repeat("k", 30_000): "wide"}
	for i := range 3000 {
		env.Headers[fmt.Sprint("h", i)] = "v"
	}
	s.insert(t, env)
	for _, flag := range []string{"--json", "--payload"} {
		require.Less(t, len(ok(t, s.DSN, "events", "show", "large", "--payload", flag)), 3_000_000, flag)
	}
	require.Contains(t, ok(t, s.DSN, "events", "show", "large", "--payload", "--json"), deep)
}
