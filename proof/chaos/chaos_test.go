package chaos_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/proof/chaos"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// length is how long faults are done.
const length = 8 * time.Second

// buildArguments are those of the processes' program: the race detector when the test
// has it.
var buildArguments []string

// Fault runs of fixed seeds keep all rules. make chaos does many more, and longer ones.
func TestFaults(t *testing.T) {
	t.Parallel()
	program, err := faultrun.Build(t.Context(), t.TempDir(), buildArguments...)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "outbox-chaos-") //nolint:usetesting // a failing run keeps its history
	require.NoError(t, err)
	runner := &chaos.Runner{Program: program, Dir: dir, Shared: true}
	t.Cleanup(func() {
		runner.Close()
		if !t.Failed() {
			require.NoError(t, os.RemoveAll(dir))
		}
	})
	for _, target := range testdb.Main() {
		database := string(target.Kind)
		for _, seed := range seeds[database] {
			t.Run(fmt.Sprintf("%s/%d", database, seed), func(t *testing.T) {
				t.Parallel()
				testdb.Open(t, target) // skips the test without a server
				result := runner.Run(t.Context(), chaos.NewPlan(seed, database, length))
				t.Log(result)
				require.True(t, result.OK())
				require.NotZero(t, result.Report.Succeeded)
			})
		}
	}
}

// A version of before the reliability work and today's write and deliver together, while
// the table is altered. make chaos/skew does more.
func TestVersionSkew(t *testing.T) {
	if os.Getenv("OUTBOX_TEST_LONG") == "" {
		t.Skip("OUTBOX_TEST_LONG=1 runs two versions on one table; it needs the repository's history")
	}
	t.Parallel()
	dir := t.TempDir()
	program, err := faultrun.Build(t.Context(), dir, buildArguments...)
	require.NoError(t, err)
	older, err := faultrun.BuildOlder(t.Context(), olderRevision, dir, buildArguments...)
	require.NoError(t, err)
	runner := &chaos.Runner{Program: program, Older: older, Dir: dir, Shared: true}
	t.Cleanup(runner.Close)
	for _, target := range testdb.Main() {
		database := string(target.Kind)
		t.Run(database, func(t *testing.T) {
			testdb.Open(t, target) // skips the test without a server
			result := runner.Run(t.Context(), chaos.NewSkewPlan(7, database, length))
			t.Log(result)
			require.True(t, result.OK())
			require.NotZero(t, result.Report.Succeeded)
		})
	}
}

// olderRevision is that of make chaos/skew.
const olderRevision = "2e94f18"

// seeds of [TestFaults]: one for each mode. They kill and terminate processes, step
// clocks, lock the table, end connections and hold them open; operators and migrations
// work meanwhile, and pgx without database/sql is among the drivers.
var seeds = map[string][]uint64{"postgres": {15, 34}, "mysql": {23}, "sqlite": {17}}

func TestFaultsHaveEachMode(t *testing.T) {
	t.Parallel()
	var modes []string
	for database, of := range seeds {
		for _, seed := range of {
			modes = append(modes, chaos.NewPlan(seed, database, length).Spec.Mode)
		}
	}
	require.ElementsMatch(t, []string{"single", "multi", "ordered", "by-key"}, modes)
}

// A plan follows from its seed, and many plans have everything.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, database := range chaos.Databases {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			found := map[string]int{}
			for seed := range uint64(500) {
				p := chaos.NewPlan(seed, database, 0)
				require.Equal(t, p, chaos.NewPlan(seed, database, 0))
				require.Len(t, p.Faults, p.Processes+p.Writers)
				found["mode "+p.Spec.Mode]++
				found["driver "+p.Spec.Driver]++
				for _, adapter := range p.Spec.Writers {
					found["adapter "+adapter]++
				}
				for _, faults := range append(p.Faults, p.Global) {
					var at time.Duration
					for _, f := range faults {
						at += f.After + f.For
						found["fault "+f.Kind]++
						found["harm "+string(f.Harm)]++
					}
					require.LessOrEqual(t, at, p.Duration)
				}
			}
			delete(found, "harm ")
			want := []string{"mode single", "mode multi", "mode ordered", "mode by-key", "adapter sqltx", "adapter raw", "adapter bun", "adapter gorm"}
			kinds, drivers := chaos.Kinds, []string{database}
			switch database {
			case "postgres":
				drivers = []string{"pgx", "pgxpool", "postgres"}
				want = append(want, "adapter pgx", "adapter pgx-batch")
			case "sqlite": // has no connections
				kinds = []string{"kill", "stop", "terminate", "clock", "lock", "disk"}
			}
			for _, kind := range kinds {
				want = append(want, "fault "+kind)
			}
			for _, driver := range drivers {
				want = append(want, "driver "+driver)
			}
			if slices.Contains(kinds, "network") {
				for _, harm := range faultrun.Harms {
					want = append(want, "harm "+string(harm))
				}
			}
			got := make([]string, 0, len(found))
			for name := range found {
				got = append(got, name)
			}
			require.ElementsMatch(t, want, got)
		})
	}
}

func TestSkewPlans(t *testing.T) {
	t.Parallel()
	terminations := 0
	for seed := range uint64(50) {
		p := chaos.NewSkewPlan(seed, "postgres", 0)
		require.Equal(t, p, chaos.NewSkewPlan(seed, "postgres", 0))
		require.True(t, p.Skew && p.Migrates)
		require.Empty(t, p.Global)
		for _, faults := range p.Faults {
			for _, f := range faults {
				require.Equal(t, "terminate", f.Kind)
				terminations++
			}
		}
	}
	require.Greater(t, terminations, 50)
}

// Plans with requests have clients in place of writers, every kind of harm, and otherwise what the plan
// of the seed has.
func TestRequestPlans(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for seed := range uint64(200) {
		p := chaos.NewRequestPlan(seed, "mysql", 0)
		require.Equal(t, p, chaos.NewRequestPlan(seed, "mysql", 0))
		require.True(t, p.Clients > 1 && p.Spec.Requests && p.Spec.Pace > 0)
		require.Empty(t, p.Spec.Writers)
		for _, faults := range p.Faults {
			for _, f := range faults {
				found[f.Kind], found[string(f.Harm)] = true, true
			}
		}
	}
	for _, harm := range append(faultrun.Harms, faultrun.LostCommit) {
		require.True(t, found[string(harm)], harm)
	}
	require.True(t, found["kill"])
}

// A run with a broken rule keeps its history and prints how to do it again. The program
// is none, so the run fails.
func TestAFailingRun(t *testing.T) {
	t.Parallel()
	runner := &chaos.Runner{Program: "/does/not/exist", Dir: t.TempDir()}
	result := runner.Run(t.Context(), chaos.NewPlan(3, "sqlite", time.Second))
	require.False(t, result.OK())
	require.DirExists(t, result.Dir)
	require.Contains(t, result.String(), "FAILED")
	require.Contains(t, result.String(), result.Dir)
	require.Contains(t, result.String(), "make chaos/faults CHAOS_SEED=3 CHAOS_DB=sqlite CHAOS_RUNS=1")
	require.Contains(t, chaos.Table([]chaos.Result{result}), "| sqlite   | 1 ")
}
