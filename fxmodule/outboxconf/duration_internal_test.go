package outboxconf

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzDuration: a duration in Go's form is read as Go reads it, days are 24 hours in each
// form, and what is refused is quoted shortly.
func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"5s", "P7D", "7d", "PT5M", "P1DT12H", "1.5h", "", "-1s", "P", "PT", "T", "99999d", "1e9s", "9223372036854775807ns"} {
		f.Add(seed, uint16(7))
	}
	f.Fuzz(func(t *testing.T, text string, days uint16) {
		d, problem := parseDuration(text)
		if want, err := time.ParseDuration(text); err == nil {
			require.Empty(t, problem)
			require.Equal(t, want, d)
		}
		if problem != "" {
			require.Zero(t, d)
			require.Less(t, len(problem), 300)
		} else {
			again, problem := parseDuration(d.String())
			require.Empty(t, problem)
			require.Equal(t, d, again)
		}
		for _, form := range []string{"%dd", "%dD", "P%dD", "P%dDT0S"} {
			d, problem := parseDuration(fmt.Sprintf(form, days))
			require.Empty(t, problem)
			require.Equal(t, time.Duration(days)*24*time.Hour, d)
		}
	})
}
