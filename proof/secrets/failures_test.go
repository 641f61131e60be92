package secrets_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/secrets"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

const soon = 30 * time.Second

// planted is an event with a secret everywhere where one may be.
func planted(id, eventType string) outbox.Envelope {
	return outbox.Envelope{
		EventID: id, EventType: outbox.EventType(eventType), AggregateID: id, TenantID: secrets.Tenant,
		Headers: secrets.Headers(), Payload: outbox.RawJSON(secrets.JSON),
	}
}

// shop is an outbox whose listeners fail in every way.
type shop struct {
	*trace
	t  *testing.T
	db *testdb.DB
	ob *outbox.Outbox
	a  *sqltx.Adapter
}

// openShop opens an outbox on the database. The listener of "Works" works, and that of
// each other type fails in the way that the type says.
func openShop(t *testing.T, db *testdb.DB, mode outbox.Mode) shop {
	t.Helper()
	tr, logger := newTrace(t)
	store, err := sqlstore.Detect(t.Context(), db.DB)
	require.NoError(t, err)
	var once atomic.Bool
	ob, err := outbox.New(outbox.Config{
		DB: db.DB, Store: store, Mode: mode, Logger: logger, RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration {
			if once.CompareAndSwap(false, true) {
				panic("no delay") // the event is due in a minute
			}
			return time.Millisecond
		}),
		Interceptors: []outbox.Interceptor{outbox.After(func(_ context.Context, env outbox.Envelope, _ error) {
			if env.EventType == "AfterPanics" {
				panic(env)
			}
		})},
		Hooks: []outbox.WriterHook{{
			BeforeWrite: func(_ context.Context, envs []outbox.Envelope) ([]outbox.Envelope, error) {
				if envs[0].EventType == "HookPanics" {
					panic(envs)
				}
				return envs, nil
			},
			AfterCommit: func(_ context.Context, envs []outbox.Envelope) {
				if envs[0].EventType == "AfterCommitPanics" {
					panic(envs[0])
				}
			},
			AfterRollback: func(_ context.Context, envs []outbox.Envelope, _ error) { panic(envs[0]) },
		}},
	})
	require.NoError(t, err)
	require.NoError(t, ob.Register(failing()...))
	t.Cleanup(func() { _ = ob.Close(context.Background()) })
	return shop{tr, t, db, ob, adaptertest.Adapter(t, db.DB, ob.Writer())}
}

func failing() (bindings []outbox.Binding) {
	for eventType, fn := range map[string]func(ctx context.Context, env outbox.Envelope) error{
		"Works":        func(context.Context, outbox.Envelope) error { return nil },
		"AfterPanics":  func(context.Context, outbox.Envelope) error { return nil },
		"Fails":        func(context.Context, outbox.Envelope) error { return errors.New("no stock") },
		"Panics":       func(_ context.Context, env outbox.Envelope) error { panic(env) },
		"PanicsDeeper": func(_ context.Context, env outbox.Envelope) error { return deeper(env.Payload.String(), env.Headers) },
		"Exits":        func(context.Context, outbox.Envelope) error { runtime.Goexit(); return nil },
		"Hangs":        func(ctx context.Context, _ outbox.Envelope) error { <-ctx.Done(); return ctx.Err() },
		"DecodesWrongly": func(_ context.Context, env outbox.Envelope) error {
			_, err := outbox.Decode[[]string](env)
			return err
		},
		"DecodesATime": func(_ context.Context, env outbox.Envelope) error {
			_, err := outbox.Decode[map[string]time.Time](env)
			return err
		},
	} {
		bindings = append(bindings, outbox.On("", outbox.EventType(eventType), outbox.ListenerFunc(fn)))
	}
	number := outbox.NewTopic[struct{ Card int }]("", "IsNoNumber")
	return append(bindings,
		number.Listen(func(context.Context, struct{ Card int }, outbox.Envelope) error { return nil }),
		outbox.On("", "IsDead", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return outbox.Dead(errors.New("sold out")) })),
		outbox.On("", "FailsForOne", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return errors.New("no mail") }), outbox.Named("mail")),
		outbox.On("", "FailsForOne", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error { panic(&env) }), outbox.Named("audit")),
		outbox.On("", "FailsInBatch", outbox.BatchListener(outbox.BatchOptions{Size: 5, Wait: time.Millisecond}, func(_ context.Context, envs []outbox.Envelope) ([]error, error) { panic(envs) })),
	)
}

// deeper panics with the secrets among its arguments.
func deeper(payload string, headers map[string]string) error {
	var missing map[string]int
	missing[payload] = len(headers) //nolint:staticcheck // it panics
	return nil
}

// write writes events in a transaction.
func (s shop) write(envs ...outbox.Envelope) error {
	return s.a.RunInTx(s.t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.a.WriteAll(ctx, tx, envs)
		return err
	})
}

func (s shop) exec(query string) {
	s.t.Helper()
	_, err := s.db.ExecContext(s.t.Context(), query)
	require.NoError(s.t, err, query)
}

// createTable creates the table with a statement that refuses one aggregate id: its
// error may have the row.
func createTable(t *testing.T, db *testdb.DB) {
	t.Helper()
	store, err := sqlstore.Detect(t.Context(), db.DB)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	refusal := "ALTER TABLE outbox_event ADD CONSTRAINT no_refused CHECK (aggregate_id <> 'refused')"
	if db.Kind == testdb.SQLite {
		refusal = "CREATE TRIGGER no_refused BEFORE INSERT ON outbox_event WHEN NEW.aggregate_id = 'refused' BEGIN SELECT RAISE(ABORT, 'refused'); END"
	}
	_, err = db.ExecContext(t.Context(), refusal)
	require.NoError(t, err)
}

// openWithPassword opens a database whose address has a password where its server takes
// any.
func openWithPassword(t *testing.T, target testdb.Target) *testdb.DB {
	t.Helper()
	if target.Kind == testdb.Postgres {
		u, err := url.Parse(testdb.PostgresDSN())
		require.NoError(t, err)
		u.User = url.UserPassword(u.User.Username(), secrets.Password)
		t.Setenv(testdb.PostgresVar, u.String())
	}
	db := testdb.Open(t, target)
	createTable(t, db)
	return db
}

// targets are one driver for each kind of database, or all with OUTBOX_TEST_LONG.
func targets() []testdb.Target {
	if os.Getenv("OUTBOX_TEST_LONG") != "" {
		return adaptertest.Drivers()
	}
	return adaptertest.Main()
}

// servers are the targets that have a server.
func servers() []testdb.Target {
	return slices.DeleteFunc(targets(), func(target testdb.Target) bool { return target.Kind == testdb.SQLite })
}

// Whatever fails, no log line, no error and no last_error has a password, a payload, a
// header's value or a tenant.
func TestFailuresShowNoSecret(t *testing.T) {
	for _, target := range targets() {
		t.Run(target.Name, func(t *testing.T) {
			mode := outbox.MultiNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 2, OnUnroutable: outbox.KillUnroutable, ListenerTimeout: 50 * time.Millisecond}, Poll: outbox.PollOptions{Interval: 20 * time.Millisecond}}
			s := openShop(t, openWithPassword(t, target), mode)
			s.refusedWrites()
			require.NoError(t, s.ob.Start(t.Context()))
			s.refusedWrites()
			require.NoError(t, s.write(planted("first", "Fails")))
			require.Eventually(t, func() bool { return strings.Contains(s.String(), "the retry policy panicked") }, soon, time.Millisecond)
			dead := s.deadEvents()
			s.undecodable()
			require.Eventually(t, func() bool {
				n, err := s.ob.DeadLetters().Count(t.Context(), outbox.DeadFilter{})
				return err == nil && n == int64(dead+2)
			}, soon, 10*time.Millisecond, "%s", s.trace)
			page, err := s.ob.DeadLetters().Find(t.Context(), outbox.DeadQuery{Limit: 100})
			require.NoError(t, err)
			for _, letter := range page.Rows {
				require.NotEmpty(t, letter.LastError)
				_, _ = s.Write([]byte(letter.LastError + "\n"))
			}
			_, err = s.ob.DeadLetters().Get(t.Context(), "none")
			s.failed(t, "a letter that is not there", err)
			s.changes()
			require.NoError(t, s.ob.Close(context.Background()))
			s.failed(t, "start after close", s.ob.Start(t.Context()))
			for _, line := range []string{"panicked", "event is dead", "cannot be decoded", "a writer hook panicked", "After interceptor panicked"} {
				require.Contains(t, s.String(), line, "the test did not cause it")
			}
		})
	}
}

// changes makes changes of an operator, and writes their entries of the audit log to the trace.
func (s shop) changes() {
	s.t.Helper()
	ctx := outbox.WithOperator(s.t.Context(), outbox.Operator{Name: "anna", From: "10.0.0.7"})
	_, err := s.ob.DeadLetters().Delete(ctx, "IsDead")
	require.NoError(s.t, err)
	_, err = s.ob.DeadLetters().DeleteAll(ctx, outbox.DeadFilter{TenantID: secrets.Tenant}, 0)
	require.NoError(s.t, err)
	page, err := s.ob.Audit(ctx, outbox.AuditQuery{})
	require.NoError(s.t, err)
	require.Len(s.t, page.Rows, 2)
	_, _ = fmt.Fprintf(s, "%+v\n", page.Rows)
}

// deadEvents writes events that end dead, and returns how many those are.
func (s shop) deadEvents() (dead int) {
	s.t.Helper()
	for _, eventType := range []string{"Works", "AfterPanics", "AfterCommitPanics", "Fails", "Panics", "PanicsDeeper", "Exits", "Hangs", "DecodesWrongly", "DecodesATime", "IsNoNumber", "IsDead", "FailsForOne", "FailsInBatch", "Unroutable"} {
		require.NoError(s.t, s.write(planted(eventType, eventType)), eventType)
	}
	return 14 // two of FailsForOne, none of Works and AfterPanics
}

// undecodable writes two events whose rows are broken before they are due.
func (s shop) undecodable() {
	s.t.Helper()
	for id, breaking := range map[string]string{
		"headers": `headers = '{"authorization":["` + secrets.Header + `"]}'`,
		"null":    `headers = '{"` + secrets.Header + `":null}'`,
	} {
		env := planted(id, "Works")
		env.DeliverAfter = time.Hour
		require.NoError(s.t, s.write(env))
		s.exec("UPDATE outbox_event SET " + breaking + " WHERE event_id = '" + id + "'")
		s.exec("UPDATE outbox_event SET available_at = created_at WHERE event_id = '" + id + "'")
	}
}

// refusedWrites tries to write what is refused.
func (s shop) refusedWrites() {
	s.t.Helper()
	long := strings.Repeat(secrets.Tenant, 50)
	for what, change := range map[string]func(env *outbox.Envelope){
		"a long tenant":           func(env *outbox.Envelope) { env.TenantID = long },
		"a tenant with a NUL":     func(env *outbox.Envelope) { env.TenantID = secrets.Tenant + "\x00" },
		"a tenant not in UTF-8":   func(env *outbox.Envelope) { env.TenantID = secrets.Tenant + "\xff" },
		"large headers":           func(env *outbox.Envelope) { env.Headers["h"] = strings.Repeat(secrets.Header, 100_000) },
		"a header with a NUL":     func(env *outbox.Envelope) { env.Headers["h"] = secrets.Header + "\x00" },
		"a reserved header":       func(env *outbox.Envelope) { env.Headers["outbox-x"] = secrets.Header },
		"a header without a key":  func(env *outbox.Envelope) { env.Headers[""] = secrets.Header },
		"no JSON":                 func(env *outbox.Envelope) { env.Payload = outbox.RawJSON(`{"card":` + secrets.Payload) },
		"a NUL in the payload":    func(env *outbox.Envelope) { env.Payload = outbox.RawJSON(`"` + secrets.Payload + `\u0000"`) },
		"a large payload":         func(env *outbox.Envelope) { env.Payload = outbox.JSON(strings.Repeat(secrets.Payload, 200_000)) },
		"what cannot be JSON":     func(env *outbox.Envelope) { env.Payload = outbox.JSON(map[string]any{secrets.Payload: make(chan int)}) },
		"a hook that panics":      func(env *outbox.Envelope) { env.EventType = "HookPanics" },
		"what the table refuses":  func(env *outbox.Envelope) { env.AggregateID = "refused" },
		"two times that conflict": func(env *outbox.Envelope) { env.DeliverAfter, env.AvailableAt = time.Hour, time.Now() },
	} {
		env := planted("refused", "Works")
		change(&env)
		s.failed(s.t, what, s.write(env))
	}
	s.failed(s.t, "one event twice", s.write(planted("twice", "Works"), planted("twice", "Works")))
	_, err := s.ob.Writer().Write(s.t.Context(), planted("alone", "Works"))
	s.failed(s.t, "no transaction", err)
}
