package conformance

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// AdapterHarness connects [RunAdapter] and [RunTap] to the adapter under test.
type AdapterHarness struct {
	// DB is the pool on which the adapter begins transactions. Its database or
	// schema belongs to the subtest: the suite creates tables in it.
	DB *sql.DB
	// Dialect is the database's.
	Dialect Dialect
	// FrameworkSavepoints says that the framework implements RunInTx within
	// RunInTx. It may then keep a savepoint whose context has ended, or leave one
	// open in which a statement failed; in these cases the suite only requires
	// that the callbacks agree with the table. The transactor's savepoints must
	// always be right.
	FrameworkSavepoints bool
	// Random is how many random transactions [RunTap] runs. Defaults to 100.
	Random int
	// New makes the adapter on DB; it is called once. With allowUnmanaged it has
	// the option of that name.
	New func(writer *outbox.Writer, allowUnmanaged bool) AdapterUnderTest
}

// AdapterUnderTest is an adapter with its transaction type hidden: a tx is always
// a value that the adapter's own Write takes.
type AdapterUnderTest interface {
	outbox.Transactor
	// RunInTx runs fn in a transaction, or a savepoint of the one in ctx.
	RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) error
	// BeginTx begins a transaction, and Commit and Rollback end it.
	BeginTx(ctx context.Context) (tx any, err error)
	Commit(tx any) error
	Rollback(tx any) error
	// Exec runs a statement without arguments in the transaction, as users of the
	// library run raw SQL.
	Exec(ctx context.Context, tx any, query string) error
	// Write and WriteAll are the adapter's.
	Write(ctx context.Context, tx any, env outbox.Envelope) (string, error)
	WriteAll(ctx context.Context, tx any, envs []outbox.Envelope) ([]string, error)
	// Unmanaged begins a transaction that no tap follows, in the same database.
	Unmanaged(ctx context.Context) (tx any, err error)
}

// RunAdapter certifies an adapter on a tap that [RunTap] has certified: finding
// the transaction, its ends, nesting, unrelated transactions, and errors.
// newHarness is called once or twice for each subtest, from several at once.
func RunAdapter(t *testing.T, newHarness func(t *testing.T) AdapterHarness) {
	t.Helper()
	runAdapterGroups(t, newHarness, []adapterGroup{
		{"Outcome", adapterOutcomeTests},
		{"Savepoint", adapterSavepointTests},
		{"Refusal", adapterRefusalTests},
		{"Bystander", adapterBystanderTests},
	})
}

// RunTap certifies a tap, the code that follows the transactions of a driver,
// through an adapter on it: all of [RunAdapter], contexts that end at every point,
// what databases do to transactions, callbacks, and random transactions that are
// compared with the table.
func RunTap(t *testing.T, newHarness func(t *testing.T) AdapterHarness) {
	t.Helper()
	RunAdapter(t, newHarness)
	runAdapterGroups(t, newHarness, []adapterGroup{
		{"Context", adapterContextTests},
		{"Database", adapterDatabaseTests},
		{"Callback", adapterCallbackTests},
		{"Random", adapterRandomTests},
	})
}

type adapterGroup struct {
	name  string
	tests []adapterTest
}

func runAdapterGroups(t *testing.T, newHarness func(t *testing.T) AdapterHarness, groups []adapterGroup) {
	t.Helper()
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					h := newHarness(t)
					if len(test.on) > 0 && !slices.Contains(test.on, h.Dialect) {
						t.Skipf("a behaviour of %v alone", test.on)
					}
					s := newAdapterSuite(t, h, test.unmanaged)
					s.another = func() *adapterSuite { return newAdapterSuite(t, newHarness(t), false) }
					test.run(s)
				})
			}
		})
	}
}

// adapterTest is one behaviour.
type adapterTest struct {
	name      string
	on        []Dialect // empty: on all
	unmanaged bool      // with the option AllowUnmanaged
	run       func(s *adapterSuite)
}

// adapterSuite is an adapter with the steps of the tests.
type adapterSuite struct {
	AdapterUnderTest
	t       *testing.T
	ctx     context.Context // the test's: it bounds every call
	db      *sql.DB
	dialect Dialect
	writer  *outbox.Writer
	calls   *adapterCalls
	wanted  func() bool          // what wantCalls last asked for
	another func() *adapterSuite // on another database
	// frameworkSavepoints and random are the harness's.
	frameworkSavepoints bool
	random              int
}

func newAdapterSuite(t *testing.T, h AdapterHarness, allowUnmanaged bool) *adapterSuite {
	t.Helper()
	if h.DB == nil || h.New == nil || h.Dialect == "" {
		t.Fatal("conformance: the harness lacks one of DB, Dialect and New")
	}
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	t.Cleanup(cancel)
	s := &adapterSuite{
		t: t, ctx: ctx, db: h.DB, dialect: h.Dialect, calls: newAdapterCalls(),
		frameworkSavepoints: h.FrameworkSavepoints, random: cmp.Or(h.Random, 100),
	}
	t.Cleanup(s.unchanged)
	for _, table := range adapterTables {
		s.exec(table)
	}
	writer, err := outbox.NewWriter(outbox.WriterConfig{
		Store: adapterStore{dialect: h.Dialect}, Source: h.DB, Hooks: []outbox.WriterHook{s.calls.hook()},
	})
	if err != nil {
		t.Fatalf("making a writer: %v", err)
	}
	s.writer = writer
	s.AdapterUnderTest = h.New(writer, allowUnmanaged)
	return s
}

// adapterTables are suite_event, where the suite's store keeps the ids, and the
// tables for the tests of failing commits and deadlocks.
var adapterTables = []string{
	"CREATE TABLE suite_event (id VARCHAR(64) NOT NULL PRIMARY KEY)",
	"CREATE TABLE suite_row (id INTEGER NOT NULL PRIMARY KEY, n INTEGER NOT NULL)",
	"INSERT INTO suite_row (id, n) VALUES (1, 0), (2, 0)",
}

// exec runs a statement outside of any transaction.
func (s *adapterSuite) exec(query string) {
	s.t.Helper()
	if _, err := s.db.ExecContext(s.ctx, query); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

// begin begins a transaction that is rolled back when the test ends.
func (s *adapterSuite) begin() any {
	s.t.Helper()
	tx, err := s.BeginTx(s.ctx)
	s.ok("BeginTx", err)
	s.t.Cleanup(func() { _ = s.Rollback(tx) })
	return tx
}

// write writes one event and returns its id.
func (s *adapterSuite) write(ctx context.Context, tx any) string {
	s.t.Helper()
	id, err := s.Write(ctx, tx, s.event())
	s.ok("Write", err)
	if id == "" {
		s.t.Error("Write returned no id and no error")
	}
	return id
}

func (s *adapterSuite) event() outbox.Envelope {
	return outbox.Envelope{EventType: "SuiteEvent", AggregateType: "Suite", AggregateID: "1", Payload: outbox.JSON(map[string]int{"n": 1})}
}

// run runs a raw statement in the transaction.
func (s *adapterSuite) run(tx any, query string) {
	s.t.Helper()
	s.ok(query, s.Exec(s.ctx, tx, query))
}

func (s *adapterSuite) ok(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

// rows checks which events are in the table.
func (s *adapterSuite) rows(want ...string) {
	s.t.Helper()
	got := s.stored()
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		s.t.Errorf("the table has the events %v; want %v", got, want)
	}
}

// stored is the ids in the table, sorted.
func (s *adapterSuite) stored() []string {
	s.t.Helper()
	rows, err := s.db.QueryContext(s.ctx, "SELECT id FROM suite_event")
	s.ok("reading the events", err)
	defer func() { _ = rows.Close() }()
	var got []string
	for rows.Next() {
		var id string
		s.ok("reading an event", rows.Scan(&id))
		got = append(got, id)
	}
	s.ok("reading the events", rows.Err())
	slices.Sort(got)
	return got
}

// truth checks that each event has had one callback, which agrees with the table.
func (s *adapterSuite) truth(ids ...string) {
	s.t.Helper()
	var kept, undone []string
	stored := s.stored()
	for _, id := range ids {
		if slices.Contains(stored, id) {
			kept = append(kept, id)
		} else {
			undone = append(undone, id)
		}
	}
	s.wantCalls(kept, undone)
}

// eventually waits until the condition holds.
func (s *adapterSuite) eventually(what string, condition func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
