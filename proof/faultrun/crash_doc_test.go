package faultrun_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/faultrun"
)

const (
	crashDoc   = "../../docs/reliability/CRASH-POINTS.md"
	pointsFrom = "<!-- points -->\n"
	pointsTo   = "<!-- end of points -->"
)

// requireDocumented holds the table of points in the documents against those that the
// script passes. With UPDATE_GOLDEN=1 it writes the table.
func requireDocumented(t *testing.T, cases []crashCase) {
	t.Helper()
	text, err := os.ReadFile(crashDoc)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), pointsFrom)
	table, after, closed := strings.Cut(rest, pointsTo)
	require.True(t, ok && closed, "%s has no table of points", crashDoc)
	if want := pointsTable(cases); os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(crashDoc, []byte(before+pointsFrom+want+pointsTo+after), 0o600))
	} else {
		require.Equal(t, pointsOf(want), pointsOf(table), "make the table again: UPDATE_GOLDEN=1 go test -C proof ./faultrun -run TestEveryCrashPoint/script")
	}
}

// pointsOf are the names in a table.
func pointsOf(table string) []string {
	var points []string
	for line := range strings.Lines(table) {
		points = append(points, strings.SplitN(line, "|", 3)[1])
	}
	return points
}

// pointsTable is a row for each point: the modes whose script passes it, and the faults
// that are tried there. Points that only a slow machine passes are left out.
func pointsTable(cases []crashCase) string {
	modes := map[string]map[string]bool{}
	faults := map[string]map[faultrun.CrashFault]bool{}
	for _, c := range cases {
		if seldom.MatchString(c.point()) {
			continue
		}
		point := strings.TrimSuffix(c.point(), ", with rows")
		if modes[point] == nil {
			modes[point], faults[point] = map[string]bool{}, map[faultrun.CrashFault]bool{}
		}
		modes[point][c.mode] = true
		faults[point][c.crash.Fault] = true
	}
	var table strings.Builder
	table.WriteString("| point | modes | faults |\n|---|---|---|\n")
	for _, point := range slices.Sorted(maps.Keys(modes)) {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", point, inOrder(crashModes, modes[point]), inOrder(faultrun.CrashFaults, faults[point]))
	}
	return table.String()
}

// inOrder joins those of the names that are in a set.
func inOrder[T ~string](names []T, in map[T]bool) string {
	var texts []string
	for _, name := range names {
		if in[name] {
			texts = append(texts, string(name))
		}
	}
	if len(texts) == len(names) {
		return "all"
	}
	return strings.Join(texts, ", ")
}
