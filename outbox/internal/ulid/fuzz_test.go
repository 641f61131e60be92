package ulid_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/ulid"
)

// FuzzNew: whatever the clock does, each id is greater than the one before, and has 26
// characters of the alphabet.
func FuzzNew(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0))
	f.Add(int64(1700000000000), int64(-1), int64(1))
	f.Add(int64(-5), int64(1<<48-1), int64(1<<47))
	f.Fuzz(func(t *testing.T, a, b, c int64) {
		var g ulid.Generator
		last := ""
		for _, ms := range []int64{a, b, c, c, a} {
			id := g.New(time.UnixMilli(ms % (1 << 48)))
			require.Len(t, id, 26)
			require.Empty(t, strings.Trim(id, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"))
			require.Greater(t, id, last)
			last = id
		}
	})
}
