package sqlname_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/sqlname"
)

func TestDerivedNamesStayShortAndApart(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	names := map[string]bool{}
	for _, name := range []string{"outbox_event", long + "aaa", long + "aab"} {
		table, err := sqlname.Parse("s." + name)
		require.NoError(t, err)
		derived := []string{table.Table("control").Name}
		for _, suffix := range []string{"due", "old", "dead", "done", "age"} {
			derived = append(derived, table.Index(suffix))
		}
		for _, d := range derived {
			require.LessOrEqual(t, len(d), 63)
			require.False(t, names[d], d)
			names[d] = true
		}
		require.Equal(t, "s", table.Table("control").Schema)
	}
}

func TestNameIsRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "a.", ".a", "a.b.c", "1a", "a-b", `a"b`, "a`b", "a b", "tablé", strings.Repeat("x", 64)} {
		_, err := sqlname.Parse(name)
		require.Error(t, err, name)
	}
}
