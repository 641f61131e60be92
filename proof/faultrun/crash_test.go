package faultrun_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/proof/checker"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

var crashModes = []string{"single", "multi", "ordered", "by-key"}

// crashRun runs one crash on a database of its own.
func crashRun(t *testing.T, program, dir string, c crashCase) (*faultrun.CrashRun, error) {
	t.Helper()
	db := testdb.Open(t, c.target)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	spec := faultrun.Spec{
		Driver: drivers[db.Kind], DSN: db.DSN, Mode: c.mode, Interval: 50 * time.Millisecond,
		Workers: 1, Crash: &c.crash, Requests: c.mode == "multi", // requests are the same in all modes
	}
	if len(c.name())%2 == 0 {
		spec.Owner = "node" // of all processes
	}
	if c.mode == "multi" || c.mode == "by-key" {
		// The leases of the process that crashes are renewed while it runs, and expire
		// when it goes on without them. Those of the others never expire here.
		spec.Lease, c.crash.Lease = time.Minute, 2*time.Second
	}
	if c.takeover {
		c.crash.Follows = true
		spec.Crash = &faultrun.Crash{Point: "before the listener of Plain", Nth: 3, Fault: faultrun.KillBefore, Then: &c.crash}
	}
	require.NoError(t, faultrun.CreateTables(ctx, db.DB, spec))
	return faultrun.NewCrashRun(ctx, program, dir, db.DB, spec)
}

// crashTries is how often a run is repeated that did not come to its point.
const crashTries = 3

// judge runs a crash until it has come to its point, and holds the history against the
// rules.
func judge(t *testing.T, program string, c crashCase) (hit bool) {
	t.Helper()
	for range crashTries {
		dir := historyDir(t)
		run, err := crashRun(t, program, dir, c)
		require.NoError(t, err, "the logs are in %s", dir)
		report := checker.Check(run.History)
		require.Empty(t, report.Violations, "%v\nthe logs are in %s", report, dir)
		requireNoRepeat(t, run)
		if run.Hit {
			return true
		}
	}
	return false
}

// historyDir is a folder that is kept when the test fails.
func historyDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "outbox-crash-") //nolint:usetesting // t.TempDir is removed in any case.
	require.NoError(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir)
		}
	})
	return dir
}

// requireNoRepeat demands more than the rules: the processes after the dead one deliver
// nothing that was stored as delivered, and nothing twice.
func requireNoRepeat(t *testing.T, run *faultrun.CrashRun) {
	t.Helper()
	if len(run.Dead) == 0 {
		return
	}
	done := map[checker.Target]bool{}
	for _, r := range run.History.Records {
		if slices.Contains(run.Dead, r.Process) || r.Event == "" || strings.Contains(r.Event, "many") {
			continue
		}
		require.False(t, run.Ended[r.Event], "event %s had ended, and was delivered by process %s", r.Event, r.Process)
		if r.Op == checker.OpEnded && r.Result == checker.Done {
			of := checker.Target{Event: r.Event, Listener: r.Listener}
			require.False(t, done[of], "event %s was delivered twice after the crash", r.Event)
			done[of] = true
		}
	}
}

// longCrash is the value of OUTBOX_TEST_LONG that runs every crash instead of a sample.
const longCrash = "crash"

// A process is killed, loses an answer, or has a statement executed late, at the points
// of a script, on each database in each mode. Another one delivers what it left.
func TestEveryCrashPoint(t *testing.T) {
	t.Parallel()
	program, err := faultrun.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	cases, scripts := allCrashCases(t, program)
	long := os.Getenv("OUTBOX_TEST_LONG") == longCrash
	if long && scripts == len(crashModes)*len(testdb.Main()) { // not with -run
		requireDocumented(t, cases)
	}
	if !long {
		cases = sampleOf(cases, crashSeed(t))
	}
	tally := crashTally{began: time.Now(), hit: map[string]bool{}}
	t.Cleanup(func() { tally.report(t, long) })
	for _, c := range cases {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			tally.add(c.point(), judge(t, program, c))
		})
	}
}

// allCrashCases are the crashes in all modes on all databases, and how many scripts those
// were.
func allCrashCases(t *testing.T, program string) (all []crashCase, scripts int) {
	t.Helper()
	var mu sync.Mutex
	t.Run("script", func(t *testing.T) {
		for _, mode := range crashModes {
			for _, target := range testdb.Main() {
				t.Run(mode+"/"+target.Name, func(t *testing.T) {
					t.Parallel()
					for _, takeover := range []bool{false, true} {
						cases := crashCases(t, program, crashCase{target: target, mode: mode, takeover: takeover})
						mu.Lock()
						all = append(all, cases...)
						mu.Unlock()
					}
					mu.Lock()
					defer mu.Unlock()
					scripts++
				})
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return all, scripts
}

// crashTally counts runs. A point that no run came to fails the test, unless it is a sample.
type crashTally struct {
	began        time.Time
	mu           sync.Mutex
	runs, missed int
	hit          map[string]bool
}

func (a *crashTally) add(point string, hit bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runs++
	if !hit {
		a.missed++
	}
	a.hit[point] = a.hit[point] || hit
}

func (a *crashTally) report(t *testing.T, all bool) {
	t.Logf("%d runs at %d points in %v; %d of them did not come to their point", a.runs, len(a.hit), time.Since(a.began).Round(time.Second), a.missed)
	for point, hit := range a.hit {
		if all && !hit && !seldom.MatchString(point) {
			t.Errorf("no run came to the point %q", point)
		}
	}
}
