package outbox_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

func TestAReasonLeavesOutWhatDiffers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       "",
		"it failed":              "it failed",
		"order 17 not found":     "order # not found",
		"order o-17/4 not found": "order o-# not found",
		"after 250ms, 3 tries":   "after #ms, # tries",
		"waited 1m30.5s":         "waited #s",
		"dial tcp 10.0.0.7:5432: connect: connection refused":       "dial tcp #: connect: connection refused",
		"dial tcp [2001:db8::1]:5432: i/o timeout":                  "dial tcp [#]:#: i/o timeout",
		"dial tcp [::1]:5432: connect: connection refused":          "dial tcp [#]:#: connect: connection refused",
		"read tcp 10.1.2.3:51234->10.0.0.9:443: broken pipe":        "read tcp #->#: broken pipe",
		"user 7f3e9a10-abcd-4bcd-8abc-0123456789ab is gone":         "user # is gone",
		"event 01J9ZQ4TM3X5Y6Z7A8B9C0D1E2 has no order":             "event # has no order",
		"trace 0af7651916cd43dd8448eb211c80319c at 0x1f3c":          "trace # at #",
		"commit a1b2c3d of main":                                    "commit # of main",
		"at 2024-03-05T10:20:30.123Z and 2024-03-05 10:20:30":       "at #Z and # #",
		`column "total" of 'orders' can't be null, user's value`:    `column "#" of '#' can't be null, user's value`,
		`an "unclosed quote of 5`:                                   `an "unclosed quote of #`,
		"HTTP 503 Service Unavailable: {\"code\":\"E42\",\"n\":12}": `HTTP # Service Unavailable: {"#":"#","#":#}`,
		"panic at /app/order.go:117: index out of range [5]":        "panic at /app/order.go:#: index out of range [#]",
		"two\n  lines\t\x00 of it \xff":                             "two lines of it \uFFFD",
		"größe 12 überschritten":                                    "größe # überschritten",
	} {
		require.Equal(t, want, outbox.ReasonOf(text), text)
	}
	require.LessOrEqual(t, len(outbox.ReasonOf(strings.Repeat("é", 4000))), 300)
}

func FuzzReasonOf(f *testing.F) {
	for _, seed := range []string{
		"", "order 17", `"a" 'b' 1"2"`, "[::1]:5432", "a:b:1:", "7f3e9a10-abcd-4bcd-8abc-0123456789ab", "1.2:3#4", "# - #", "''", "1é2", "::::1.",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		reason := outbox.ReasonOf(text)
		require.LessOrEqual(t, len(reason), 300)
		require.True(t, utf8.ValidString(reason), "%q", reason)
		require.Equal(t, reason, outbox.ReasonOf(reason))
		require.False(t, strings.ContainsAny(reason, "0123456789\n\x00"), "%q", reason)
	})
}
