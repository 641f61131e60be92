package reason_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/reason"
)

func TestAReasonLeavesOutWhatDiffers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       "",
		"it failed":              "it failed",
		"order 17 not found":     "order # not found",
		"order o-17/4 not found": "order o-# not found",
		"after 250ms, 3 tries":   "after #, # tries",
		"waited 1m30.5s":         "waited #",
		"waited 1.5µs, -2h0m3s":  "waited #, -#",
		"in 5min, 3s4":           "in #min, #",
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
		"HTTP 503 Service Unavailable: {\"code\":\"E42\",\"n\":12}": `HTTP 503 Service Unavailable: {"#":"#","#":#}`,
		"panic at /app/order.go:117: index out of range [5]":        "panic at /app/order.go:#: index out of range [#]",
		"status code 404 of order 404":                              "status code 404 of order #",
		"statusCode=503, status: 200":                               "statusCode=503, status: 200",
		"status 192.168.0.1, code 404-17, HTTP 503ms":               "status #, code #, HTTP #",
		"status 999, status 12, zip 404":                            "status #, status #, zip #",
		"duplicate key (SQLSTATE 23505), SQLSTATE[40P01]":           "duplicate key (SQLSTATE 23505), SQLSTATE[40P01]",
		"Error 1213 (40001): Deadlock found, error 12":              "Error 1213 (#): Deadlock found, error #",
		"two\n  lines\t\x00 of it \xff":                             "two lines of it \uFFFD",
		"größe 12 überschritten":                                    "größe # überschritten",
	} {
		require.Equal(t, want, reason.Of(text), text)
	}
	require.LessOrEqual(t, len(reason.Of(strings.Repeat("é", 4000))), 300)
}

func FuzzReason(f *testing.F) {
	for _, seed := range []string{
		"", "order 17", `"a" 'b' 1"2"`, "[::1]:5432", "a:b:1:", "7f3e9a10-abcd-4bcd-8abc-0123456789ab", "1.2:3#4", "# - #", "''", "1é2", "::::1.", "status 404:503", "SQLSTATE=23505 error 1213", "1h2m3.4s5",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := reason.Of(text)
		require.LessOrEqual(t, len(got), 300)
		require.True(t, utf8.ValidString(got), "%q", got)
		require.Equal(t, got, reason.Of(got))
		require.False(t, strings.ContainsAny(got, "\n\x00"), "%q", got)
		require.NotRegexp(t, `[0-9]{6}`, got, "only codes have digits")
	})
}
