package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dialectOf(kind testdb.Kind) idempotency.Dialect {
	return map[testdb.Kind]idempotency.Dialect{testdb.Postgres: idempotency.Postgres, testdb.MySQL: idempotency.MySQL, testdb.SQLite: idempotency.SQLite}[kind]
}

// service is a process of a service that books orders by keys.
type service struct {
	keys    *idempotency.Keys
	adapter *sqltx.Adapter
}

func serve(t testing.TB, db *testdb.DB, wait time.Duration) *service {
	t.Helper()
	keys, err := idempotency.New(idempotency.Config{DB: db.DB, Dialect: dialectOf(db.Kind), Wait: wait})
	require.NoError(t, err)
	require.NoError(t, keys.CreateSchema(t.Context()))
	require.NoError(t, keys.CreateSchema(t.Context()), "a second time")
	return &service{keys, adapterOf(t, db)}
}

func adapterOf(t testing.TB, db *testdb.DB) *sqltx.Adapter {
	t.Helper()
	writer, _ := adaptertest.WriterWithoutTable(t, db.DB, string(dialectOf(db.Kind)))
	return adaptertest.Adapter(t, db.DB, writer)
}

// book does a request: it inserts an order and answers with the order's number.
func (s *service) book(ctx context.Context, r idempotency.Request, order string) (answer idempotency.Answer, done bool, err error) {
	ctx, attempt, err := s.keys.Begin(ctx, s.adapter, nil, r)
	if err != nil {
		return answer, false, err
	}
	if attempt.Done() {
		return attempt.Answer(), true, nil
	}
	defer func() { _ = attempt.Rollback() }()
	tx, _ := s.adapter.TxFrom(ctx)
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ('"+order+"')"); err != nil {
		return answer, false, err
	}
	answer = idempotency.Answer{Status: 201, Headers: map[string][]string{"Location": {"/orders/" + order}}, Body: []byte(order)}
	return answer, false, attempt.Commit(answer)
}

func orders(t *testing.T, db *testdb.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&n))
	return n
}

func createOrders(t *testing.T, db *testdb.DB) {
	t.Helper()
	adaptertest.Exec(t, db.DB, "CREATE TABLE orders (id VARCHAR(64) NOT NULL)")
}

func TestARequestIsDoneOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Drivers(), func(t *testing.T, db *testdb.DB) {
		createOrders(t, db)
		s := serve(t, db, 0)
		r := idempotency.Request{Key: "k", Fingerprint: []byte("a hash")}
		first, done, err := s.book(t.Context(), r, "1")
		require.NoError(t, err)
		require.False(t, done)
		for range 3 {
			again, done, err := s.book(t.Context(), r, "2")
			require.NoError(t, err)
			require.True(t, done)
			require.Equal(t, first, again)
		}
		_, _, err = s.book(t.Context(), idempotency.Request{Key: "k", Fingerprint: []byte("another hash")}, "3")
		require.ErrorIs(t, err, idempotency.ErrOtherRequest)
		_, done, err = s.book(t.Context(), idempotency.Request{Scope: "tenant", Key: "k", Fingerprint: []byte("a hash")}, "4")
		require.NoError(t, err)
		require.False(t, done, "another scope")
		require.Equal(t, 2, orders(t, db))
	})
}

func TestAnAnswerComesBackAsItWas(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Drivers(), func(t *testing.T, db *testdb.DB) {
		s := serve(t, db, 0)
		large := []byte(strings.Repeat("\x00\xff'\\", 1<<18))
		for name, answer := range map[string]idempotency.Answer{
			"empty":    {Status: 204, Headers: map[string][]string{}, Body: []byte{}},
			"not kept": {Status: 200, Headers: map[string][]string{}},
			"large":    {Status: 599, Headers: map[string][]string{"X": {"a", "ü😀\"\\"}}, Body: large},
		} {
			r := idempotency.Request{Key: name}
			_, attempt, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
			require.NoError(t, err)
			require.NoError(t, attempt.Commit(answer))
			require.ErrorIs(t, attempt.Commit(answer), sql.ErrTxDone)
			require.ErrorIs(t, attempt.Rollback(), sql.ErrTxDone)
			_, again, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
			require.NoError(t, err)
			require.True(t, again.Done())
			require.Equal(t, answer, again.Answer(), name)
			require.ErrorIs(t, again.Rollback(), sql.ErrTxDone)
		}
		r := idempotency.Request{Key: "no text"}
		_, attempt, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
		require.NoError(t, err)
		require.NoError(t, attempt.Commit(idempotency.Answer{Status: 200, Headers: map[string][]string{"X": {"\xff"}, "Y": {"y"}}}))
		_, again, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
		require.NoError(t, err)
		require.Equal(t, map[string][]string{"Y": {"y"}}, again.Answer().Headers)
	})
}

func TestARollbackStoresNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		createOrders(t, db)
		s, r := serve(t, db, 0), idempotency.Request{Key: "k"}
		for range 2 {
			_, attempt, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
			require.NoError(t, err)
			require.False(t, attempt.Done())
			require.NoError(t, attempt.Rollback())
			require.ErrorIs(t, attempt.Commit(idempotency.Answer{}), sql.ErrTxDone)
		}
		_, done, err := s.book(t.Context(), r, "1")
		require.NoError(t, err)
		require.False(t, done)
		require.Equal(t, 1, orders(t, db))
	})
}

func TestARefusalIsStoredWithoutTheRows(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		createOrders(t, db)
		s, r := serve(t, db, 0), idempotency.Request{Key: "k"}
		ctx, attempt, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
		require.NoError(t, err)
		tx, _ := s.adapter.TxFrom(ctx)
		_, err = tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ('1')")
		require.NoError(t, err)
		_, own, err := attempt.Refuse(idempotency.Answer{Status: 402, Body: []byte("no money")})
		require.NoError(t, err)
		require.True(t, own)
		_, _, err = attempt.Refuse(idempotency.Answer{})
		require.ErrorIs(t, err, sql.ErrTxDone)
		answer, done, err := s.book(t.Context(), r, "2")
		require.NoError(t, err)
		require.True(t, done)
		require.Equal(t, 402, answer.Status)
		require.Zero(t, orders(t, db))
	})
}

// A transaction that other code commits has no answer.
func TestACommitWithoutAnAnswerIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		s, r := serve(t, db, 0), idempotency.Request{Key: "k"}
		ctx, attempt, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
		require.NoError(t, err)
		tx, _ := s.adapter.TxFrom(ctx)
		require.NoError(t, tx.Commit())
		require.Error(t, attempt.Commit(idempotency.Answer{}))
		_, _, err = s.keys.Begin(t.Context(), s.adapter, nil, r)
		require.ErrorIs(t, err, idempotency.ErrNotKept)
	})
}

// A request waits for another with the same key, in this process and in another, and then gets the
// answer. A request that waits in the process of the other holds no connection.
func TestARequestWaitsForAnotherWithItsKey(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		createOrders(t, db)
		s, r := serve(t, db, time.Minute), idempotency.Request{Key: "k"}
		other := serve(t, db.Reopen(t), time.Minute)
		_, attempt, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
		require.NoError(t, err)
		var wg sync.WaitGroup
		var done, first atomic.Int32
		inUse := db.Stats().InUse
		for i := range 20 {
			wg.Go(func() {
				at := s
				if i%10 == 0 && db.Kind != testdb.SQLite { // an open transaction locks a SQLite database
					at = other
				}
				answer, wasDone, err := at.book(t.Context(), r, "1")
				if err != nil || answer.Status != 201 {
					t.Errorf("%v, %v", answer, err)
				} else if wasDone {
					done.Add(1)
				} else {
					first.Add(1)
				}
			})
		}
		require.Eventually(t, func() bool { return s.keys.Waiting() >= 18 }, 20*time.Second, time.Millisecond)
		require.Equal(t, inUse, db.Stats().InUse)
		require.NoError(t, attempt.Rollback())
		wg.Wait()
		require.Equal(t, []int32{1, 19}, []int32{first.Load(), done.Load()})
		require.Equal(t, 1, orders(t, db))
		require.Zero(t, s.keys.Waiting())
	})
}

// A request waits for a bounded time, also for one of another process.
func TestARequestDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Servers(), func(t *testing.T, db *testdb.DB) {
		patient, r := serve(t, db, time.Minute), idempotency.Request{Key: "k"}
		s, other := serve(t, db, 100*time.Millisecond), serve(t, db.Reopen(t), 100*time.Millisecond)
		s.keys.Share(patient.keys)
		_, attempt, err := patient.keys.Begin(t.Context(), patient.adapter, nil, r)
		require.NoError(t, err)
		for _, at := range []*service{s, other} {
			_, _, err = at.keys.Begin(t.Context(), at.adapter, nil, r)
			require.ErrorIs(t, err, idempotency.ErrRunning)
			gone, cancel := context.WithCancelCause(t.Context())
			cancel(errors.New("gone"))
			_, _, err = at.keys.Begin(gone, at.adapter, nil, r)
			require.ErrorIs(t, err, context.Canceled, "the client has gone")
		}
		require.NoError(t, attempt.Commit(idempotency.Answer{Status: 200}))
		for _, at := range []*service{patient, serve(t, db.Reopen(t), time.Minute)} {
			_, again, err := at.keys.Begin(t.Context(), at.adapter, nil, r)
			require.NoError(t, err)
			require.True(t, again.Done())
		}
	})
}

// More than a number of requests do not wait at all.
func TestTheRequestsThatWaitAreFew(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, adaptertest.Main()[2])
	s, r := serve(t, db, time.Minute), idempotency.Request{Key: "k"}
	_, attempt, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
	require.NoError(t, err)
	var refused atomic.Int32
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, again, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
			if errors.Is(err, idempotency.ErrRunning) {
				refused.Add(1)
			} else if err != nil || !again.Done() {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return refused.Load() == 68 }, 20*time.Second, time.Millisecond)
	require.NoError(t, attempt.Commit(idempotency.Answer{Status: 200}))
	wg.Wait()
}

// In transactions that see an old state of the table, and that give way to each other.
func TestARequestIsDoneOnceAtEveryLevel(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Servers(), func(t *testing.T, db *testdb.DB) {
		createOrders(t, db)
		services := []*service{serve(t, db, time.Minute), serve(t, db.Reopen(t), time.Minute), serve(t, db.Reopen(t), time.Minute)}
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			var wg sync.WaitGroup
			var done atomic.Int32
			for i := range 12 {
				wg.Go(func() {
					s := services[i%3]
					for {
						ctx, attempt, err := s.keys.Begin(t.Context(), s.adapter, &sql.TxOptions{Isolation: level}, idempotency.Request{Key: level.String()})
						if err != nil {
							t.Error(err)
							return
						}
						if attempt.Done() {
							done.Add(1)
							return
						}
						if i%4 == 0 { // requests that wait become the first, in several processes at once
							_ = attempt.Rollback()
							i++
							continue
						}
						tx, _ := s.adapter.TxFrom(ctx)
						_, err = tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ('1')")
						if err == nil {
							err = attempt.Commit(idempotency.Answer{Status: 200})
						} else {
							_ = attempt.Rollback()
						}
						if err == nil {
							return
						}
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 11, done.Load(), level)
		}
		require.Equal(t, 3, orders(t, db))
	})
}

// The answer to COMMIT is lost: the request is found to be done, or not.
func TestALostAnswerToCommitIsFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Servers(), func(t *testing.T, db *testdb.DB) {
		createOrders(t, db)
		cutting, cuts := db.CutCommits(t)
		s, r := serve(t, db, time.Minute), idempotency.Request{Key: "k"}
		cut := &service{s.keys, adapterOf(t, cutting)}
		keys, err := idempotency.New(idempotency.Config{DB: cutting.DB, Dialect: dialectOf(db.Kind)})
		require.NoError(t, err)
		cut.keys = keys
		for i := range 5 {
			r.Key = strings.Repeat("k", i+1)
			_, done, err := cut.book(t.Context(), r, "1")
			require.NoError(t, err)
			require.False(t, done)
			_, done, err = s.book(t.Context(), r, "1")
			require.NoError(t, err)
			require.True(t, done)
		}
		require.NotZero(t, cuts.Load())
		require.Equal(t, 5, orders(t, db))
	})
}

func TestKeysArePurgedByAge(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		createOrders(t, db)
		s, r := serve(t, db, 0), idempotency.Request{Key: "k"}
		_, _, err := s.book(t.Context(), r, "1")
		require.NoError(t, err)
		_, err = s.keys.Purge(t.Context(), 0)
		require.ErrorContains(t, err, "age is 0s")
		n, err := s.keys.Purge(t.Context(), time.Hour)
		require.NoError(t, err)
		require.Zero(t, n)
		require.Eventually(t, func() bool {
			n, err := s.keys.Purge(t.Context(), time.Microsecond)
			return err == nil && n == 1
		}, 20*time.Second, time.Millisecond)
		_, done, err := s.book(t.Context(), r, "2")
		require.NoError(t, err)
		require.False(t, done)
	})
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	_, err := idempotency.New(idempotency.Config{Dialect: "oracle", Table: "a b", Wait: -1})
	for _, field := range []string{"Config.DB", "Config.Dialect", "Config.Table", "Config.Wait"} {
		require.ErrorContains(t, err, "idempotency."+field)
	}
	db := testdb.Open(t, adaptertest.Main()[2])
	s := serve(t, db, 0)
	_, _, err = s.keys.Begin(t.Context(), s.adapter, nil, idempotency.Request{Key: strings.Repeat("k", 256), Fingerprint: make([]byte, 33)})
	require.ErrorContains(t, err, "Request.Key has 256 bytes")
	require.ErrorContains(t, err, "Request.Fingerprint has 33 bytes")
	require.NotContains(t, err.Error(), "kkk", "keys are not logged")
	_, _, err = s.keys.Begin(t.Context(), s.adapter, nil, idempotency.Request{})
	require.ErrorContains(t, err, "Request.Key has 0 bytes")
	_, _, err = s.keys.Begin(t.Context(), adapterOf(t, db.Reopen(t)), nil, idempotency.Request{Key: "k"})
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "idempotency.Config.DB", field.Field)
	require.Contains(t, s.keys.Schema(), "idempotency_key")
}

// lost is a transactor whose transactions get no answer to COMMIT.
type lost struct {
	outbox.Transactor
	commits bool        // the transaction was committed all the same
	after   func()      // called after the COMMIT
	away    atomic.Bool // no transaction can begin
}

type lostTx struct {
	outbox.Transaction
	l *lost
}

func (l *lost) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	if l.away.Load() {
		return nil, nil, errors.New("the database is away")
	}
	ctx, tx, err := l.Transactor.Begin(ctx, opts)
	return ctx, lostTx{tx, l}, err
}

func (tx lostTx) Commit() error {
	end := tx.Rollback
	if tx.l.commits {
		end = tx.Transaction.Commit
	}
	if err := end(); err != nil {
		return err
	}
	if tx.l.after != nil {
		tx.l.after()
	}
	return outbox.ErrOutcomeUnknown
}

// Without an answer to COMMIT, the key says whether the transaction was committed.
func TestTheKeySaysHowATransactionEnded(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		createOrders(t, db)
		s := serve(t, db, time.Minute)
		begin := func(l *lost, key string) *idempotency.Attempt {
			l.Transactor = s.adapter
			_, attempt, err := s.keys.Begin(t.Context(), l, nil, idempotency.Request{Key: key})
			require.NoError(t, err)
			return attempt
		}
		answer := idempotency.Answer{Status: 200, Body: []byte("an order")}
		require.NoError(t, begin(&lost{commits: true}, "committed").Commit(answer))

		err := begin(&lost{}, "rolled back").Commit(answer)
		require.ErrorContains(t, err, "was rolled back")
		require.NotErrorIs(t, err, outbox.ErrOutcomeUnknown)
		_, done, err := s.book(t.Context(), idempotency.Request{Key: "rolled back"}, "1")
		require.NoError(t, err)
		require.False(t, done)

		other := serve(t, db.Reopen(t), 0)
		err = begin(&lost{after: func() {
			_, _, err := other.book(t.Context(), idempotency.Request{Key: "another's"}, "2")
			require.NoError(t, err)
		}}, "another's").Commit(answer)
		require.ErrorContains(t, err, "another request has the key")
		require.NotErrorIs(t, err, outbox.ErrOutcomeUnknown)

		l := &lost{commits: true}
		l.after = func() { l.away.Store(true) }
		attempt := begin(l, "away")
		s.keys.Wait(100 * time.Millisecond) // the database stays away
		err = attempt.Commit(answer)
		require.ErrorIs(t, err, outbox.ErrOutcomeUnknown)
		require.ErrorContains(t, err, "the database is away")
		s.keys.Wait(time.Minute)
		_, done, err = s.book(t.Context(), idempotency.Request{Key: "away"}, "3")
		require.NoError(t, err)
		require.True(t, done)
	})
}

// between calls a function after each rollback.
type between struct {
	outbox.Transactor
	rolledBack func()
}

type betweenTx struct {
	outbox.Transaction
	b *between
}

func (b *between) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	ctx, tx, err := b.Transactor.Begin(ctx, opts)
	return ctx, betweenTx{tx, b}, err
}

func (tx betweenTx) Rollback() error {
	err := tx.Transaction.Rollback()
	if tx.b.rolledBack != nil {
		tx.b.rolledBack()
	}
	return err
}

// Another process is faster while a refusal is stored.
func TestARefusalThatComesTooLateGivesTheOtherAnswer(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		createOrders(t, db)
		s, other, r := serve(t, db, time.Minute), serve(t, db.Reopen(t), time.Minute), idempotency.Request{Key: "k"}
		b := &between{Transactor: s.adapter}
		_, attempt, err := s.keys.Begin(t.Context(), b, nil, r)
		require.NoError(t, err)
		b.rolledBack = sync.OnceFunc(func() {
			_, _, err := other.book(t.Context(), r, "1")
			require.NoError(t, err)
		})
		stored, own, err := attempt.Refuse(idempotency.Answer{Status: 402})
		require.NoError(t, err)
		require.False(t, own)
		require.Equal(t, 201, stored.Status)
		require.Equal(t, 1, orders(t, db))
	})
}

// A key needs a transaction that ends with the request.
func TestATransactionAroundARequestIsRefused(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, adaptertest.Main()[2])
	s := serve(t, db, 0)
	require.NoError(t, outbox.InTx(t.Context(), s.adapter, func(ctx context.Context) error {
		_, _, err := s.keys.Begin(ctx, s.adapter, nil, idempotency.Request{Key: "k"})
		require.ErrorContains(t, err, "carries a transaction of the pool")
		_, _, err = s.keys.Begin(t.Context(), nil, nil, idempotency.Request{Key: "k"})
		require.ErrorContains(t, err, "Begin t is nil")
		return nil
	}))
}

// A failure is not taken for another request that runs, and leaves no turn behind.
func TestAFailureIsNotARequestThatRuns(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, adaptertest.Main()[0])
	s, r := serve(t, db, 3*time.Second), idempotency.Request{Key: "k"}
	db.SetMaxOpenConns(1)
	held, err := db.Conn(t.Context())
	require.NoError(t, err)
	begun := make(chan error)
	go func() {
		_, attempt, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
		if err == nil {
			err = attempt.Rollback()
		}
		begun <- err
	}()
	require.Eventually(t, func() bool { return db.Stats().WaitCount > 0 }, 20*time.Second, time.Millisecond)
	_, err = held.ExecContext(t.Context(), "SELECT pg_sleep(3.2)") // for longer than a request waits
	require.NoError(t, err)
	require.NoError(t, held.Close())
	require.NoError(t, <-begun, "it waited for a connection, not for a request")

	away := &lost{Transactor: s.adapter}
	away.away.Store(true)
	_, _, err = s.keys.Begin(t.Context(), away, nil, r)
	require.EqualError(t, err, "the database is away")
	require.Panics(t, func() { _, _, _ = s.keys.Begin(t.Context(), &lost{}, nil, r) })
	require.Zero(t, s.keys.Waiting())
	_, attempt, err := s.keys.Begin(t.Context(), s.adapter, nil, r)
	require.NoError(t, err)
	require.NoError(t, attempt.Rollback())
}

// A request that runs for long, with an old key, holds up neither other keys nor the purge of others.
func TestAPurgeLeavesNewKeysAlone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Servers(), func(t *testing.T, db *testdb.DB) {
		s := serve(t, db, time.Minute)
		for i := range 300 {
			_, attempt, err := s.keys.Begin(t.Context(), s.adapter, nil, idempotency.Request{Key: strings.Repeat("k", i%250) + strings.Repeat("l", i/250+1)})
			require.NoError(t, err)
			require.NoError(t, attempt.Commit(idempotency.Answer{Status: 200}))
		}
		old := map[testdb.Kind]string{testdb.Postgres: "now() - INTERVAL '2 days'", testdb.MySQL: "UTC_TIMESTAMP(6) - INTERVAL 2 DAY"}[db.Kind]
		_, err := db.ExecContext(t.Context(), "UPDATE idempotency_key SET created_at = "+old)
		require.NoError(t, err)
		_, running, err := s.keys.Begin(t.Context(), s.adapter, nil, idempotency.Request{Key: "runs for long"})
		require.NoError(t, err)
		purged := make(chan error, 1)
		go func() {
			_, err := s.keys.Purge(t.Context(), time.Hour)
			purged <- err
		}()
		for i := range 20 {
			_, attempt, err := s.keys.Begin(t.Context(), s.adapter, nil, idempotency.Request{Key: "new" + strings.Repeat("k", i)})
			require.NoError(t, err)
			require.NoError(t, attempt.Commit(idempotency.Answer{Status: 200}))
		}
		require.NoError(t, running.Commit(idempotency.Answer{Status: 200}))
		require.NoError(t, <-purged)
		var left int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM idempotency_key").Scan(&left))
		require.Equal(t, 21, left)
	})
}
