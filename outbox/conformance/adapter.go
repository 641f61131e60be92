package conformance

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// AdapterHarness connects [RunAdapter] and [RunTap] to the adapter under test.
type AdapterHarness struct {
	// DB is the pool on which the adapter begins transactions. Its database or
	// schema belongs to the subtest: the suite creates tables in it.
	DB *sql.DB
	// Pool limits and counts the connections of the adapter's transactions. Defaults to DB; an
	// adapter whose transactions do not come from DB has another pool.
	Pool PoolUnderTest
	// Dialect is the dialect of the database.
	Dialect Dialect
	// OwnContext says that a transaction outlives the context with which it began, as with pgx:
	// [RunTap] leaves out the tests in which the end of that context ends the transaction.
	OwnContext bool
	// SeesEnd says that a COMMIT that is run as a statement has a known outcome.
	SeesEnd bool
	// FrameworkSavepoints says that the framework implements RunInTx within RunInTx. The framework
	// may then keep a savepoint whose context has ended, or leave a savepoint open in which a
	// statement failed; in these cases the suite only requires that the callbacks agree with the
	// table. The transactor's savepoints must always be right.
	FrameworkSavepoints bool
	// Random is how many random transactions [RunTap] runs. Defaults to 100.
	Random int
	// New makes the adapter on DB, and is called once. With allowUnmanaged the adapter has the
	// option AllowUnmanaged.
	New func(writer *outbox.Writer, allowUnmanaged bool) AdapterUnderTest
}

// PoolUnderTest has the methods of a pool that the suite needs besides transactions.
type PoolUnderTest interface {
	SetMaxOpenConns(n int)
	// Stats has InUse, and WaitCount when a call waits for a connection.
	Stats() sql.DBStats
}

// AdapterUnderTest is an adapter with its transaction type hidden: a tx is always
// a value that the adapter's own Write takes.
type AdapterUnderTest interface {
	outbox.Transactor
	// RunInTx runs fn in a transaction, or in a savepoint of the transaction in ctx.
	RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) error
	// BeginTx begins a transaction, and Commit and Rollback end it.
	BeginTx(ctx context.Context) (tx any, err error)
	Commit(tx any) error
	Rollback(tx any) error
	// Exec runs a statement without arguments in the transaction, as users of the
	// library run raw SQL.
	Exec(ctx context.Context, tx any, query string) error
	// Write and WriteAll are the adapter's methods.
	Write(ctx context.Context, tx any, env outbox.Envelope) (string, error)
	WriteAll(ctx context.Context, tx any, envs []outbox.Envelope) ([]string, error)
	// AfterCommit and AfterRollback are the adapter's methods.
	AfterCommit(ctx context.Context, tx any, fn func(ctx context.Context)) error
	AfterRollback(ctx context.Context, tx any, fn func(ctx context.Context, cause error)) error
	// Unmanaged begins a transaction that no tap follows, in the same database.
	Unmanaged(ctx context.Context) (tx any, err error)
}

// RunAdapter certifies an adapter on a tap that [RunTap] has certified: finding the transaction,
// its ends, nesting, unrelated transactions, errors, and taking back; see [AdapterThatTakesBack].
// newHarness is called once or twice for each subtest, from several subtests at once.
func RunAdapter(t *testing.T, newHarness func(t *testing.T) AdapterHarness) {
	t.Helper()
	runAdapterGroups(t, newHarness, []adapterGroup{
		{"Outcome", adapterOutcomeTests},
		{"Savepoint", adapterSavepointTests},
		{"Refusal", adapterRefusalTests},
		{"Bystander", adapterBystanderTests},
		{"AfterTheEnd", adapterOwnTests},
		{"Once", adapterOnceTests},
		{"TakeBack", adapterTakeBackTests},
	})
}

// RunTap certifies a tap, the code that follows the transactions of a driver, through an adapter on
// it: all of [RunAdapter], contexts that end at every point, effects of databases on transactions,
// callbacks, and random transactions that are compared with the table.
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
						t.Skipf("only %v behave like this", test.on)
					}
					if test.contextEnds && h.OwnContext {
						t.Skip("the adapter's transactions do not end with a context")
					}
					s := newAdapterSuite(t, h, test.unmanaged)
					s.another = func() *adapterSuite { return newAdapterSuite(t, newHarness(t), false) }
					test.run(s)
				})
			}
		})
	}
}

// adapterTest tests a behaviour.
type adapterTest struct {
	name      string
	on        []Dialect // empty: on all databases
	unmanaged bool      // with the option AllowUnmanaged
	// contextEnds: the end of the context ends a transaction.
	contextEnds bool
	run         func(s *adapterSuite)
}

// adapterSuite is a harness and its adapter with the steps of the tests.
type adapterSuite struct {
	AdapterHarness
	AdapterUnderTest
	steps
	writer *outbox.Writer
	// unmanaged: with the option AllowUnmanaged.
	unmanaged bool
	calls     *outboxtest.Recorder
	own       ownCallbacks
	during    func(ctx context.Context) // nil, or called by each after-commit callback
	wanted    func() bool               // the condition that wantCalls last asked for
	another   func() *adapterSuite      // makes a suite on another database
}

func newAdapterSuite(t *testing.T, h AdapterHarness, allowUnmanaged bool) *adapterSuite {
	t.Helper()
	if h.DB == nil || h.New == nil || h.Dialect == "" {
		t.Fatal("conformance: the harness lacks one of DB, Dialect and New")
	}
	h.Random = cmp.Or(h.Random, 100)
	if h.Pool == nil {
		h.Pool = h.DB
	}
	s := &adapterSuite{AdapterHarness: h, steps: newSteps(t), unmanaged: allowUnmanaged, calls: outboxtest.NewRecorder()}
	t.Cleanup(s.unchanged)
	t.Cleanup(s.wantSameCallbacks)
	for _, table := range adapterTables {
		s.exec(table)
	}
	ob, err := outbox.New(outbox.Config{
		DB: h.DB, Store: adapterStore{dialect: h.Dialect}, Mode: outbox.WriterOnly{},
		Hooks: []outbox.WriterHook{s.calls.Hook(), {AfterCommit: func(ctx context.Context, _ []outbox.Envelope) {
			if s.during != nil {
				s.during(ctx)
			}
		}}},
	})
	if err != nil {
		t.Fatalf("making a writer: %v", err)
	}
	s.writer = ob.Writer()
	s.AdapterUnderTest = h.New(s.writer, allowUnmanaged)
	return s
}

// adapterTables are suite_event, where the suite's store keeps the ids, and the
// tables for the tests of failing commits and deadlocks.
var adapterTables = []string{
	"CREATE TABLE suite_event (id VARCHAR(64) NOT NULL PRIMARY KEY)",
	"CREATE TABLE suite_row (id INTEGER NOT NULL PRIMARY KEY, n INTEGER NOT NULL)",
	"INSERT INTO suite_row (id, n) VALUES (1, 0), (2, 0)",
}
