package tenants_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/tenants"
)

// Tenants come and go at random while events are written, opening fails, and connections are ended. Each
// event that was committed is delivered to the listener of its tenant, and to no other.
func TestNoEventOfATenantIsLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		target testdb.Target
		count  int
	}{{testdb.Main()[2], 50}, {testdb.Main()[0], 20}, {testdb.Main()[1], 5}} {
		t.Run(string(c.target.Kind), func(t *testing.T) {
			t.Parallel()
			s := newStreet(t, c.target, c.count)
			random := rand.New(rand.NewPCG(1, uint64(c.count)))
			for round := range 8 {
				var here []string
				for _, name := range s.names {
					if random.IntN(4) > 0 {
						here = append(here, name)
					}
				}
				s.set(t, here)
				s.writeAll(t, round)
				if round%3 == 2 {
					s.endConnections(t)
				}
			}
			s.mend()
			s.set(t, s.names)
			require.Eventually(t, func() bool { return len(s.missing()) == 0 }, 3*time.Minute, 50*time.Millisecond)
			if err := s.m.Close(t.Context()); err != nil {
				t.Log(err) // of a connection that was ended
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			require.Greater(t, len(s.written), c.count, "a run in which nothing was written")
			require.Empty(t, s.strangers)
			require.Zero(t, s.running, "a tenant was not closed")
		})
	}
}

// street has a database for each tenant.
type street struct {
	m      *tenants.Manager[*home]
	names  []string
	dbs    map[string]*testdb.DB
	shared *outbox.SharedWorkers

	mu        sync.Mutex
	broken    bool // opening fails at times
	running   int
	written   map[string]bool // tenant and event
	delivered map[string]bool
	strangers []string // events that came to another tenant
}

type home struct {
	db *testdb.DB
	tx *sqltx.Adapter
}

var moved = outbox.NewTopic[string]("House", "Moved")

func newStreet(t *testing.T, target testdb.Target, count int) *street {
	t.Helper()
	s := &street{dbs: map[string]*testdb.DB{}, shared: outbox.NewSharedWorkers(8), broken: true, written: map[string]bool{}, delivered: map[string]bool{}}
	for i := range count {
		name := fmt.Sprintf("tenant-%d", i)
		var opts []testdb.Option
		if target.Kind == testdb.Postgres {
			opts = append(opts, testdb.Param("application_name", s.application()))
		}
		db := testdb.Open(t, target.Via(sqltx.Open), opts...)
		require.NoError(t, s.store(db).CreateSchema(t.Context(), db.DB))
		s.names, s.dbs[name] = append(s.names, name), db
	}
	var err error
	s.m, err = tenants.New(tenants.Config[*home]{Logger: quiet, Opening: 4, MaxBackoff: time.Second, Open: func(_ context.Context, name string) (tenants.Tenant[*home], error) {
		return s.open(t, name)
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.m.Close(context.WithoutCancel(t.Context())) })
	return s
}

func (*street) store(db *testdb.DB) *sqlstore.Store {
	switch db.Kind {
	case testdb.Postgres:
		return sqlstore.Postgres()
	case testdb.MySQL:
		return sqlstore.MySQL()
	default:
		return sqlstore.SQLite()
	}
}

func (s *street) open(t *testing.T, name string) (opened tenants.Tenant[*home], err error) {
	s.mu.Lock()
	fails := s.broken && rand.IntN(4) == 0
	s.mu.Unlock()
	if fails {
		return opened, errors.New("this attempt fails")
	}
	db := s.dbs[name].Reopen(t)
	db.SetMaxOpenConns(3)
	ob, err := outbox.New(outbox.Config{DB: db.DB, Store: s.store(db), Logger: quiet, Mode: outbox.MultiNode{
		Poll: outbox.PollOptions{Interval: 200 * time.Millisecond}, Claim: outbox.ClaimOptions{LeaseDuration: 5 * time.Second},
		Dispatch: outbox.DispatchOptions{SharedWorkers: s.shared, Workers: 2},
	}})
	if err != nil {
		return opened, err
	}
	tx, err := sqltx.New(db.DB, ob.Writer())
	if err != nil {
		return opened, err
	}
	err = ob.Register(moved.Listen(func(_ context.Context, to string, _ outbox.Envelope) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.delivered[to] = true; !s.written[to] || !isOf(to, name) {
			s.strangers = append(s.strangers, name+" got "+to)
		}
		return nil
	}))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	return tenants.Tenant[*home]{Outbox: ob, Value: &home{db, tx}, Close: func() error {
		s.mu.Lock()
		s.running--
		s.mu.Unlock()
		return db.Close()
	}}, err
}

func isOf(event, name string) bool { return len(event) > len(name) && event[:len(name)+1] == name+"/" }

// set makes these the tenants. A tenant whose connection was ended may report that it could not give back
// all that it had.
func (s *street) set(t *testing.T, names []string) {
	t.Helper()
	var field *outbox.FieldError
	if err := s.m.Set(t.Context(), names...); err != nil {
		require.NotErrorAs(t, err, &field)
		t.Log(err)
	}
}

// writeAll writes an event for each tenant, for several at once. Some tenants are not there, or their
// connections end: such an event counts as written if it may have been committed.
func (s *street) writeAll(t *testing.T, round int) {
	t.Helper()
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := w; i < len(s.names); i += 4 {
				name := s.names[i]
				event := fmt.Sprintf("%s/%d", name, round)
				// The tenant may not be there, or cannot be opened now.
				_ = s.m.Use(t.Context(), name, func(h *home) error {
					s.mu.Lock()
					s.written[event] = true
					s.mu.Unlock()
					err := h.tx.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
						_, err := h.tx.Write(ctx, tx, moved.Envelope(name, event))
						return err
					})
					if err != nil { // it may be there all the same, and is not waited for
						s.mu.Lock()
						s.delivered[event] = true
						s.mu.Unlock()
					}
					return nil
				})
			}
		})
	}
	writers.Wait()
}

// application names the connections to PostgreSQL's schemas.
func (*street) application() string { return fmt.Sprintf("tenants_test_%d", os.Getpid()) }

// endConnections ends all connections to the servers.
func (s *street) endConnections(t *testing.T) {
	t.Helper()
	db := s.dbs[s.names[0]]
	switch db.Kind {
	case testdb.Postgres:
		_, _ = db.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '"+s.application()+"' AND pid <> pg_backend_pid()")
	case testdb.MySQL:
		for _, db := range s.dbs {
			rows, err := db.QueryContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
			require.NoError(t, err)
			var ids []int64
			for rows.Next() {
				var id int64
				require.NoError(t, rows.Scan(&id))
				ids = append(ids, id)
			}
			require.NoError(t, errors.Join(rows.Err(), rows.Close()))
			for _, id := range ids {
				_, _ = db.ExecContext(t.Context(), fmt.Sprintf("KILL %d", id)) // it may have ended
			}
		}
	default: // a file has no connections to end
	}
}

func (s *street) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = false
}

func (s *street) missing() (events []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for event := range s.written {
		if !s.delivered[event] {
			events = append(events, event)
		}
	}
	return events
}
