package main_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// People copy the hint into a shell.
func TestTheHintOfTheNextPageRunsNothingInAShell(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		planted := filepath.Join(t.TempDir(), "f")
		hostile := "0'; >" + "f; '\u202e"
		ids := []string{hostile, "z"}
		for _, id := range ids {
			s.insert(t, envelope(id))
		}
		s.kill(t, "x", ids...)
		for _, list := range []string{"dead", "events"} {
			args := []string{list, "list", "--limit", "1"}
			if list == "events" {
				args = append(args, "--status", "dead")
			}
			var seen []string
			for _, first := range []bool{true, false} {
				r := run(t, s.DSN, args...)
				require.Zero(t, r.code, r.err)
				seen = append(seen, strings.Fields(strings.Split(r.out, "\n")[1])[0])
				_, hint, more := strings.Cut(strings.TrimSpace(r.err), "There may be more: add ")
				require.Equal(t, first, more, r.err)
				if !more {
					break
				}
				shell := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s\\n' "+hint)
				shell.Dir = filepath.Dir(planted)
				words, err := shell.Output()
				require.NoError(t, err)
				require.NoFileExists(t, planted)
				args = append(args, strings.Fields(string(words))...)
			}
			require.Len(t, seen, 2, list)
			require.NotEqual(t, seen[0], seen[1], list)
		}
	})
}

func TestACursorThatNoListingPrintedIsAWrongFlag(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	for _, cursor := range []string{
		"2026-01-01T00:00:00Z,x",
		"MDAwMC0wMS0wMVQwMDowMDowMFoseA",  // the year 0
		"MjAyNi0wMS0wMVQwMDowMDowMFos",    // no id
		"MjAyNi0wMS0wMVQwMDowMDowMFosAHg", // a NUL
		"MmgseA",                          // a duration
	} {
		require.Contains(t, fails(t, 2, s.DSN, "dead", "list", "--after", cursor), "--after is a text of", cursor)
	}
}
