package outbox

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzListenerRow: the row for one of several listeners gives back the event and the
// listener's name, whatever headers it has, and its id fits the column. The headers of any
// row, such as one that another program wrote, are read without a panic, and no listener
// sees those of the outbox.
func FuzzListenerRow(f *testing.F) {
	f.Add("id", "mail", "key", "value")
	f.Add("", "", "", "")
	f.Add("id", "audit", HeaderListener, "other")
	f.Add("id", "audit", HeaderEventID, "other")
	f.Fuzz(func(t *testing.T, id, listener, key, value string) {
		env := Envelope{EventID: id, Headers: map[string]string{key: value}}
		foreign, _ := originalOf(&env)
		if env.Headers[HeaderListener] != "" {
			require.NotContains(t, foreign.Headers, HeaderListener)
			require.NotContains(t, foreign.Headers, HeaderEventID)
		}
		if listener == "" || key == HeaderListener || key == HeaderEventID {
			return // Named refuses the one, and Write the others
		}
		row := rowFor(&env, listener)
		require.LessOrEqual(t, utf8.RuneCountInString(row.EventID), MaxEventIDLength)
		require.Equal(t, row.EventID, rowFor(&env, listener).EventID)
		got, name := originalOf(row)
		require.Equal(t, env, got)
		require.Equal(t, listener, name)
	})
}

// FuzzErrorText: what is stored as last_error is text that every database takes, within
// its limit, and a short text that is clean already is stored as it is.
func FuzzErrorText(f *testing.F) {
	for _, seed := range []string{"", "no stock", "\x00", "\xff", "\u4e2d\U0001f600"} {
		f.Add(seed, 1)
		f.Add(seed, MaxErrorLength)
	}
	f.Fuzz(func(t *testing.T, part string, times int) {
		text := ""
		for range times % (2 * MaxErrorLength) {
			if text += part; len(text) > 6*MaxErrorLength {
				break
			}
		}
		got := errorText(text)
		require.True(t, isClean(got))
		require.LessOrEqual(t, utf8.RuneCountInString(got), MaxErrorLength)
		require.Equal(t, got, errorText(got))
		if isClean(text) {
			require.True(t, len(got) <= len(text) && text[:len(got)] == got)
			require.True(t, got == text || utf8.RuneCountInString(got) == MaxErrorLength)
		}
	})
}
