package faultrun_test

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// crashCase is a crash on a database in a mode. takeover: the process that crashes is the
// one that delivers what a dead one left.
type crashCase struct {
	target   testdb.Target
	mode     string
	takeover bool
	crash    faultrun.Crash
}

// crashPoint is a fault at the points of one name.
type crashPoint struct {
	fault faultrun.CrashFault
	point string
}

// recordPoints runs the script without a crash and counts the points.
func recordPoints(t *testing.T, program string, c crashCase) map[crashPoint]int {
	t.Helper()
	dir := t.TempDir()
	c.crash = faultrun.Crash{Record: true}
	_, err := crashRun(t, program, dir, c)
	require.NoError(t, err)
	process := "a"
	if c.takeover {
		process = "b"
	}
	file, err := os.Open(filepath.Join(dir, process+".points"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	points := map[crashPoint]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fault, point, _ := strings.Cut(lines.Text(), "\t")
		require.NotContains(t, point, "unknown", "the statement has no class in crash_class.go")
		points[crashPoint{faultrun.CrashFault(fault), point}]++
	}
	return points
}

// seldom are points that the script passes only when the machine is slow.
var seldom = regexp.MustCompile("^not in the hot queue$|: (read states|read the clock|read the pauses, with rows|ROLLBACK after )|^taking over, engine: renew")

// others are what a process that takes over finds only when the machine is slow.
var others = regexp.MustCompile("Ledger|Inbox|Batch|Many")

// crashCases are the crashes at the points that a process passes without one.
func crashCases(t *testing.T, program string, of crashCase) []crashCase {
	t.Helper()
	var cases []crashCase
	for p, n := range recordPoints(t, program, of) {
		if isLate(p.fault) && !takesEffect(p.point) || of.takeover && others.MatchString(p.point) {
			continue
		}
		for nth := 1; nth <= min(n, most(p.point)); nth++ {
			of.crash = faultrun.Crash{Point: p.point, Nth: nth, Fault: p.fault}
			cases = append(cases, of)
		}
	}
	slices.SortFunc(cases, byName)
	return cases
}

func isLate(fault faultrun.CrashFault) bool {
	return fault == faultrun.ExecuteLate || fault == faultrun.DieAndExecuteLate
}

// takesEffect reports whether a statement changes something when it is executed after
// its client has gone. One within a transaction is undone, and a query has nobody to
// answer.
func takesEffect(point string) bool {
	if strings.Contains(point, "COMMIT") {
		return true
	}
	whose, class, _ := strings.Cut(point, ": ")
	return (whose == "engine" || whose == "operator") && class != "BEGIN" && !strings.HasPrefix(class, "read") && class != "poll"
}

// most is how many of the points of one name are tried: the first ones. Engine
// statements and commits differ by what came before.
func most(point string) int {
	if takesEffect(point) || strings.HasPrefix(point, "after the listener") || strings.HasPrefix(point, "request: ") {
		return 3
	}
	return 1
}

func (c crashCase) name() string {
	return strings.ReplaceAll(fmt.Sprintf("%s/%s/%s/%s/%d", c.mode, c.target.Name, c.crash.Fault, c.point(), c.crash.Nth), " ", "_")
}

// point is the name of the case's point.
func (c crashCase) point() string {
	if c.takeover {
		return "taking over, " + c.crash.Point
	}
	return c.crash.Point
}

// sampleOf chooses a crash for each point. The seed decides which, and in which mode and
// on which database.
func sampleOf(cases []crashCase, seed uint64) []crashCase {
	best := map[string]crashCase{}
	rank := func(c crashCase) uint64 {
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, seed, c.name())
		return h.Sum64()
	}
	for _, c := range cases {
		if was, ok := best[c.point()]; c.crash.Nth == 1 && (!ok || rank(c) < rank(was)) {
			best[c.point()] = c
		}
	}
	return slices.SortedFunc(maps.Values(best), byName)
}

func byName(a, b crashCase) int { return strings.Compare(a.name(), b.name()) }

// crashSeed is the seed of the sample: OUTBOX_TEST_SEED, or 1.
func crashSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("OUTBOX_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("OUTBOX_TEST_SEED=%d", seed)
	return seed
}
