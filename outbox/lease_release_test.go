package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// landing is a store whose rows the server is still committing: until they have
// landed a release finds none.
type landing struct {
	*outboxtest.Store

	mu       sync.Mutex
	landed   bool
	err      error       // of releases
	releases []time.Time // that were tried
}

func (s *landing) memory() *outboxtest.Store { return s.Store }

func (s *landing) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if kind == outbox.OutcomeReleased {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.releases = append(s.releases, time.Now())
		if s.err != nil || !s.landed {
			return alone(marks, outbox.RowState{}), s.err
		}
	}
	return s.Store.Mark(ctx, db, kind, marks)
}

func (s *landing) land() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.landed, s.err = true, nil
}

// after are the times of the tries since then.
func (s *landing) after(begin time.Time) (tries []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.releases {
		tries = append(tries, at.Sub(begin))
	}
	return tries
}

// multi is a node that polls once an hour.
func multi(owner string, leaseDuration time.Duration) outbox.MultiNode {
	return outbox.MultiNode{
		Poll:  outbox.PollOptions{Interval: time.Hour},
		Claim: outbox.ClaimOptions{Owner: owner, LeaseDuration: leaseDuration},
	}
}

// unknown writes the events in a transaction whose COMMIT is not answered.
func (e *engine) unknown(envs ...outbox.Envelope) {
	e.t.Helper()
	scope := outboxtest.NewScope(e.store.DB())
	_, err := e.Writer().WriteScope(e.t.Context(), scope, envs)
	require.NoError(e.t, err)
	require.NoError(e.t, scope.CommitUnknown(true))
}

func deliverTo(got chan<- outbox.Envelope) func(context.Context, outbox.Envelope) error {
	return func(_ context.Context, env outbox.Envelope) error {
		got <- env
		return nil
	}
}

func TestALeaseInDoubtIsGivenUpUntilThatTakesEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &landing{Store: outboxtest.NewStore()}
		got := make(chan outbox.Envelope, 1)
		e := start(t, outbox.Config{Store: store, Mode: multi("me", 5*time.Minute)}, deliverTo(got))
		begin := time.Now()
		e.unknown(said("late"))
		require.Zero(t, time.Since(begin), "the caller does not wait")
		time.AfterFunc(500*time.Millisecond, store.land)
		env := <-got
		require.Zero(t, env.Attempts)
		require.Equal(t, 1110*time.Millisecond, time.Since(begin))
		e.await("late", outbox.StatusDone)
		time.Sleep(10 * time.Minute)
		ms := time.Millisecond
		require.Equal(t, []time.Duration{0, 10 * ms, 110 * ms, 1110 * ms}, store.after(begin))
		require.NoError(t, e.Close(t.Context()))
	})
}

// A transaction that was rolled back has no rows: the retries end with the lease.
func TestALeaseInDoubtIsForgottenWhenItIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{nil, errors.New("the database is away")} {
			store := &landing{Store: outboxtest.NewStore(), err: err}
			book := &logbook{}
			e := start(t, outbox.Config{Store: store, Logger: slog.New(book), Mode: multi("me", 5*time.Minute)},
				deliverTo(make(chan outbox.Envelope, 1)))
			begin := time.Now()
			e.unknown(said("1"), said("2"))
			e.unknown(said("3"))
			time.Sleep(time.Hour)
			tries := store.after(begin)
			require.Len(t, tries, 2*8)
			require.Less(t, tries[len(tries)-1], 5*time.Minute)
			require.Greater(t, tries[len(tries)-1], time.Minute)
			warned := counted(book.about("could not be given back"))
			if err == nil {
				require.Zero(t, warned)
			} else {
				require.EqualValues(t, 3, warned)
			}
			require.NoError(t, e.Close(t.Context()))
		}
	})
}

func TestCloseGivesUpALeaseInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &landing{Store: outboxtest.NewStore()}
		e := start(t, outbox.Config{Store: store, Mode: multi("me", 5*time.Minute)}, deliverTo(make(chan outbox.Envelope, 1)))
		e.unknown(said("late"))
		time.Sleep(200 * time.Millisecond)
		store.land()
		require.NoError(t, e.Close(t.Context()))
		row, _ := e.store.Row("late")
		require.Empty(t, row.LockedBy)
	})
}

// A transaction may end after the outbox is closed, with any outcome.
func TestATransactionThatEndsAfterCloseGivesItsLeaseUp(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*outboxtest.Scope) error{
		"committed": (*outboxtest.Scope).Commit,
		"unknown":   func(s *outboxtest.Scope) error { return s.CommitUnknown(true) },
	} {
		for _, away := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", and the database is away"}[away], func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { endAfterClose(t, end, away) })
			})
		}
	}
}

func endAfterClose(t *testing.T, end func(*outboxtest.Scope) error, away bool) {
	store := &landing{Store: outboxtest.NewStore(), landed: true}
	book := &logbook{}
	e := start(t, outbox.Config{Store: store, Logger: slog.New(book), Mode: multi("me", 5*time.Minute)},
		deliverTo(make(chan outbox.Envelope, 1)))
	scope := outboxtest.NewScope(e.store.DB())
	_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("1"), said("2")})
	require.NoError(t, err)
	require.NoError(t, e.Close(t.Context()))
	if away {
		store.err = errors.New("the pool is closed")
	}
	require.NoError(t, end(scope))
	synctest.Wait()
	lines := book.about("could not be given back")
	if away {
		require.EqualValues(t, 2, counted(lines))
		return
	}
	require.Empty(t, lines)
	for _, row := range store.Rows() {
		require.Empty(t, row.LockedBy)
	}
	got := make(chan outbox.Envelope, 2)
	start(t, outbox.Config{Store: store, Mode: multi("other", 5*time.Minute)}, deliverTo(got))
	for range 2 {
		require.Zero(t, (<-got).Attempts)
	}
}

// The pool may be closed even before the transaction ends.
func TestATransactionThatEndsAfterCloseOnEveryDatabase(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Servers(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		for _, poolToo := range []bool{false, true} {
			pool := db.Reopen(t)
			book := &logbook{}
			ob, err := outbox.New(outbox.Config{DB: pool.DB, Store: store, Logger: slog.New(book), Mode: multi("me", 5*time.Minute)})
			require.NoError(t, err)
			require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(deliverTo(make(chan outbox.Envelope, 2))))))
			require.NoError(t, ob.Start(t.Context()))
			a := adaptertest.Adapter(t, pool.DB, ob.Writer())
			tx, err := pool.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = a.Write(t.Context(), tx, said(fmt.Sprint(poolToo)))
			require.NoError(t, err)
			require.NoError(t, ob.Close(t.Context()))
			if poolToo {
				require.NoError(t, pool.Close())
			}
			committed := tx.Commit()
			var leased int
			require.Eventually(t, func() bool {
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE locked_by IS NOT NULL").Scan(&leased))
				return leased == len(book.about("could not be given back"))
			}, 20*time.Second, 5*time.Millisecond)
			if !poolToo {
				require.NoError(t, committed)
				require.Zero(t, leased)
			}
		}
	})
}

// undecided is a transaction whose COMMIT the server has not finished when the
// client gets the answer that its outcome is unknown.
type undecided struct {
	*sql.Tx
	outbox.TxWrites
	db       *sql.DB
	rollback func(context.Context, error)
}

func (u *undecided) Active() bool                            { return true }
func (u *undecided) Source() any                             { return u.db }
func (u *undecided) AfterCommit(func(context.Context)) error { return nil }
func (u *undecided) AtCommit(func()) error                   { return nil }

func (u *undecided) AfterRollback(fn func(context.Context, error)) error {
	u.rollback = fn
	return nil
}

// On some databases the statement that gives the lease up waits for the row,
// on others it finds none. Other events go on meanwhile.
func TestALeaseInDoubtIsGivenUpOnEveryDatabase(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Servers(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet, Mode: multi("me", 5*time.Minute)})
		require.NoError(t, err)
		got := make(chan outbox.Envelope, 2)
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(deliverTo(got)))))
		require.NoError(t, ob.Start(t.Context()))
		defer func() { require.NoError(t, ob.Close(context.Background())) }()

		write := func(id string) *undecided {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			u := &undecided{Tx: tx, db: db.DB}
			_, err = ob.Writer().WriteScope(t.Context(), u, []outbox.Envelope{said(id)})
			require.NoError(t, err)
			return u
		}
		open := write("open")
		open.rollback(t.Context(), outbox.ErrOutcomeUnknown)
		other := write("other")
		require.NoError(t, other.Commit())
		other.rollback(t.Context(), outbox.ErrOutcomeUnknown)
		receive := func(id string) {
			select {
			case env := <-got:
				require.Equal(t, id, env.EventID)
				require.Zero(t, env.Attempts)
			case <-time.After(20 * time.Second):
				t.Fatalf("%s was not delivered", id)
			}
		}
		receive("other")
		require.NoError(t, open.Commit())
		receive("open")
	})
}
