package conformance

import (
	"reflect"
	"testing"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// StoreHarness connects [RunStore] to the store under test. [SQLHarness] makes the harness of a
// store on a database/sql database, [MemoryHarness] the harness of an [outboxtest.Store].
type StoreHarness struct {
	// Store is the store, with an empty table, and DB the pool that its methods
	// get.
	Store outbox.Store
	DB    outbox.DB
	// Table is the name that the store's errors must contain.
	Table string

	// Begin opens a transaction.
	Begin func(t testing.TB) (tx outbox.Execer, commit, rollback func() error)
	// Row reads a row without the store; false: the row does not exist.
	Row func(t testing.TB, eventID string) (RawRow, bool)
	// SetRow overwrites all of [RawRow] in an existing row and commits.
	SetRow func(t testing.TB, eventID string, row RawRow)

	// Spoil are ways to make an existing row unreadable, by name: the column, and the value if the
	// column has several, as in "created_at infinity". Nil: the store cannot hold such a row.
	Spoil map[string]func(t testing.TB, eventID string)
	// SpoilLease are ways to give a leased row a lease whose time is no time, by names as in Spoil.
	// Nil: the store cannot hold such a row.
	SpoilLease map[string]func(t testing.TB, eventID string)
	// NullType makes the aggregate type of an existing row NULL. Nil: the store cannot hold
	// such a row.
	NullType func(t testing.TB, eventID string)
	// LockRow locks an existing row in its own transaction until unlock is called.
	// Nil: the database has no row locks.
	LockRow func(t testing.TB, eventID string) (unlock func())
	// SingleWriter says that a writer waits until another writer's transaction
	// ends, as on SQLite.
	SingleWriter bool
}

// RawRow holds the columns of a row that are not in its envelope.
type RawRow = outboxtest.RawRow

// RunStore certifies a store: it runs a subtest for every rule of [outbox.Store], and of
// [outbox.RunReader] and [outbox.TenantReader] if the store implements them. newHarness is called
// once for each subtest, concurrently, and returns an empty table each time; a separate table on a
// shared database is enough.
func RunStore(t *testing.T, newHarness func(t *testing.T) StoreHarness) {
	t.Helper()
	for _, group := range []struct {
		name  string
		tests []storeTest
	}{
		{"Insert", insertTests},
		{"Once", onceTests},
		{"UniqueKeys", withKeys(keyTests)},
		{"KeepLatest", withKeys(latestTests)},
		{"TakeBack", takeBackTests},
		{"Payload", payloadTests},
		{"Due", dueTests},
		{"Poll", pollTests},
		{"Claim", claimTests},
		{"Fence", fenceTests},
		{"DueAt", dueAtTests},
		{"Check", checkTests},
		{"Ranges", rangeTests},
		{"Shares", sharesTests},
		{"Audit", auditTests},
		{"Replays", replayTests},
		{"Reach", reachTests},
		{"Pause", pauseTests},
		{"Mark", markTests},
		{"Split", splitTests},
		{"Complete", completeTests},
		{"Runs", needing[outbox.RunReader](runTests)},
		{"Tenants", needing[outbox.TenantReader](tenantTests)},
		{"Purge", purgeTests},
		{"Stats", statsTests},
		{"DeadLetters", deadTests},
		{"Inspect", inspectTests},
		{"Nodes", nodeTests},
		{"Errors", errorTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					test.run(newStoreSuite(t, newHarness(t)))
				})
			}
		})
	}
}

// storeTest tests a behaviour.
type storeTest struct {
	name string
	run  func(s *storeSuite)
}

// needing are tests that a store without an optional interface skips.
func needing[T any](tests []storeTest) []storeTest {
	needing := make([]storeTest, len(tests))
	for i, test := range tests {
		needing[i] = storeTest{test.name, func(s *storeSuite) {
			if _, ok := s.Store.(T); !ok {
				s.t.Skipf("the store does not implement %v", reflect.TypeFor[T]())
			}
			test.run(s)
		}}
	}
	return needing
}

// storeSuite is a harness with the steps of the tests. Each step fails the test
// when the store returns an error.
type storeSuite struct {
	StoreHarness
	steps
	seq int
}

// suiteTime is when the suite's events occur. Only leases, done_at and times of
// death use the database's clock.
var suiteTime = time.Date(2024, 3, 5, 10, 20, 30, 123456000, time.UTC)

func newStoreSuite(t *testing.T, h StoreHarness) *storeSuite {
	t.Helper()
	if h.Store == nil || h.DB == nil || h.Begin == nil || h.Row == nil || h.SetRow == nil || h.Table == "" {
		t.Fatal("conformance.RunStore: the harness lacks one of Store, DB, Table, Begin, Row and SetRow")
	}
	return &storeSuite{StoreHarness: h, steps: newSteps(t)}
}
