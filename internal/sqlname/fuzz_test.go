package sqlname_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/sqlname"
)

// FuzzParse: a name that is accepted has no character that could end it in SQL text, is
// given back as it was, and the names derived from it are accepted too, and differ.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"outbox_event", "app.outbox_event", "", ".", "a.b.c", `x"; DROP TABLE y; --`, "x'", "x`", "tablé", "1x", strings.Repeat("a", 63), strings.Repeat("a", 64)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := sqlname.Parse(text)
		if err != nil {
			require.NotContains(t, err.Error(), "\n", "an error is one line, whatever the name")
			return
		}
		require.Equal(t, text, name.String())
		require.NotEmpty(t, name.Name)
		for _, part := range []string{name.Schema, name.Name} {
			require.LessOrEqual(t, len(part), 63)
			require.Empty(t, strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"))
		}
		require.Equal(t, strings.ReplaceAll(`"`+text+`"`, ".", `"."`), name.Quoted(`"`))
		derived := map[string]bool{name.Name: true}
		for _, other := range []string{name.Index("due"), name.Index("done"), name.Table("control").Name} {
			again, err := sqlname.Parse(other)
			require.NoError(t, err)
			require.Equal(t, other, again.Name)
			require.False(t, derived[other])
			derived[other] = true
		}
		require.Equal(t, name.Schema, name.Table("control").Schema)
	})
}
