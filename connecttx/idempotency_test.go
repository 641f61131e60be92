package connecttx_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboxkit/outbox-go/connecttx"
	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// keyed starts a server of a shop with keys.
func keyed(t *testing.T, db *testdb.DB, change func(*connecttx.Config)) *shop {
	t.Helper()
	keys := keysOf(t, db, time.Minute)
	require.NoError(t, keys.CreateSchema(t.Context()))
	config := connecttx.Config{Idempotency: &connecttx.Idempotency{Keys: keys}}
	if change != nil {
		change(&config)
	}
	return openShop(t, db, config)
}

func keysOf(t *testing.T, db *testdb.DB, wait time.Duration) *idempotency.Keys {
	t.Helper()
	keys, err := idempotency.New(idempotency.Config{DB: db.DB, Dialect: idempotency.Dialect(db.Kind), Wait: wait})
	require.NoError(t, err)
	return keys
}

// placeBy calls Place with keys, and reports whether the answer was stored before.
func (s *shop) placeBy(item string, protocol []connect.ClientOption, keys ...string) (res *connect.Response[text], replayed bool, err error) {
	s.t.Helper()
	return s.callBy(place, item, protocol, keys...)
}

func (s *shop) callBy(procedure, item string, protocol []connect.ClientOption, keys ...string) (res *connect.Response[text], replayed bool, err error) {
	s.t.Helper()
	req := connect.NewRequest(wrapperspb.String(item))
	req.Header()[connecttx.KeyHeader] = keys
	req.Header().Set("User", "ann")
	res, err = connect.NewClient[text, text](s.client, s.url+procedure, protocol...).CallUnary(s.t.Context(), req)
	if failure := (*connect.Error)(nil); errors.As(err, &failure) {
		return nil, failure.Meta().Get(connecttx.ReplayedHeader) == "true", failure
	}
	require.NoError(s.t, err)
	return res, res.Header().Get(connecttx.ReplayedHeader) == "true", nil
}

func (s *shop) placed() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), "SELECT COUNT(*) FROM orders").Scan(&n))
	return n
}

func TestACallIsDoneOnceByItsKey(t *testing.T) {
	t.Parallel()
	eachProtocol(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB, protocol ...connect.ClientOption) {
		s := keyed(t, db, func(c *connecttx.Config) {
			c.Idempotency.Required = func(_ context.Context, req connect.AnyRequest) bool { return req.Spec().Procedure == place }
			c.RollbackOn = func(_ context.Context, err error) bool {
				return err != nil && connect.CodeOf(err) != connect.CodeAlreadyExists && !errors.Is(err, context.DeadlineExceeded)
			}
		})
		s.handle = s.insert
		first, replayed, err := s.placeBy("tea", protocol, "k")
		require.NoError(t, err)
		require.False(t, replayed)
		for _, another := range protocols {
			again, replayed, err := s.placeBy("tea", another, "k")
			require.NoError(t, err)
			require.True(t, replayed)
			require.Equal(t, first.Msg.GetValue(), again.Msg.GetValue())
		}
		require.Equal(t, 1, s.placed())

		for procedure, item := range map[string]string{place: "coffee", simple: "tea"} {
			_, replayed, err = s.callBy(procedure, item, protocol, "k")
			require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
			require.False(t, replayed)
			require.ErrorContains(t, err, "another call")
		}
		for _, keys := range [][]string{{""}, {strings.Repeat("k", 256)}, {"a", "b"}} {
			_, _, err = s.placeBy("tea", protocol, keys...)
			require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
			require.ErrorContains(t, err, "is not valid")
		}
		_, _, err = s.placeBy("tea", protocol)
		require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
		require.ErrorContains(t, err, "is required")
		require.Equal(t, 1, s.placed())

		var calls atomic.Int32
		s.handle = func(ctx context.Context) error {
			if err := s.insert(ctx); err != nil || calls.Add(1) > 1 {
				return err
			}
			return errTest
		}
		_, _, err = s.placeBy("tea", protocol, "fails")
		require.Error(t, err)
		require.Equal(t, 1, s.placed(), "rolled back, and nothing is stored")
		_, replayed, err = s.placeBy("tea", protocol, "fails")
		require.NoError(t, err)
		require.False(t, replayed)
		require.Equal(t, 2, s.placed())
	})
}

// A failure that commits is stored as the client got it.
func TestAFailureThatCommitsIsStored(t *testing.T) {
	t.Parallel()
	eachProtocol(t, adaptertest.Main()[2:], func(t *testing.T, db *testdb.DB, protocol ...connect.ClientOption) {
		s := keyed(t, db, func(c *connecttx.Config) { c.RollbackOn = func(context.Context, error) bool { return false } })
		for name, returned := range map[string]error{
			"of connect": placedBefore(t), "wrapped": errors.Join(placedBefore(t), errTest),
			"another": errTest, "deadline": context.DeadlineExceeded, "without text": connect.NewError(connect.CodeAborted, nil),
		} {
			before := s.placed()
			var first, again *connect.Error
			s.handle = func(ctx context.Context) error {
				require.NoError(t, s.insert(ctx))
				return returned
			}
			_, replayed, err := s.placeBy("tea", protocol, name)
			require.ErrorAs(t, err, &first)
			require.False(t, replayed)
			_, replayed, err = s.placeBy("tea", protocol, name)
			require.ErrorAs(t, err, &again)
			require.True(t, replayed)
			require.Equal(t, first.Error(), again.Error())
			require.Equal(t, len(first.Details()), len(again.Details()))
			for i, detail := range first.Details() {
				require.Equal(t, detail.Type(), again.Details()[i].Type())
				value, err := again.Details()[i].Value()
				require.NoError(t, err)
				require.Equal(t, time.Minute, value.(*durationpb.Duration).AsDuration())
			}
			require.Equal(t, before+1, s.placed(), name)
		}
	})
}

// On SQLite a second process waits for the lock of the whole database.
func TestACallThatRunsIsNotDoneTwiceAtOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main()[:2], func(t *testing.T, db *testdb.DB) {
		s := keyed(t, db, func(c *connecttx.Config) {
			c.Idempotency.Scope = func(_ context.Context, req connect.AnyRequest) string { return req.Header().Get("User") }
		})
		began, goOn := make(chan struct{}), make(chan struct{})
		s.handle = func(ctx context.Context) error {
			close(began)
			<-goOn
			return s.insert(ctx)
		}
		ended := make(chan error)
		go func() {
			_, _, err := s.placeBy("tea", nil, "k")
			ended <- err
		}()
		<-began
		impatient := &shop{t: t, db: s.db, adapter: s.adapter}
		impatient.serve(connecttx.Config{Idempotency: &connecttx.Idempotency{
			Keys: keysOf(t, db, 100*time.Millisecond), Scope: func(context.Context, connect.AnyRequest) string { return "ann" },
		}})
		_, _, err := impatient.placeBy("tea", nil, "k")
		require.Equal(t, connect.CodeAborted, connect.CodeOf(err))
		close(goOn)
		require.NoError(t, <-ended)
		_, replayed, err := s.placeBy("tea", nil, "k")
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, 1, s.placed())

		impatient.serve(connecttx.Config{Idempotency: &connecttx.Idempotency{
			Keys: keysOf(t, db, time.Minute), Scope: func(context.Context, connect.AnyRequest) string { return "bob" },
		}})
		impatient.handle = s.insert
		_, replayed, err = impatient.placeBy("tea", nil, "k")
		require.NoError(t, err)
		require.False(t, replayed, "the key of another")
		require.Equal(t, 2, s.placed())
	})
}

// With a key, a lost answer to COMMIT is no unknown outcome.
func TestAKeySettlesALostAnswerToCommit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main()[:2], func(t *testing.T, direct *testdb.DB) {
		adaptertest.Exec(t, direct.DB, "CREATE TABLE orders (id INT)")
		require.NoError(t, keysOf(t, direct, 0).CreateSchema(t.Context()))
		proxied, cuts := direct.CutCommits(t)
		writer, record := adaptertest.WriterWithoutTable(t, proxied.DB, string(direct.Kind))
		s := &shop{t: t, db: direct.DB, writer: writer, record: record, adapter: adaptertest.Adapter(t, proxied.DB, writer)}
		s.serve(connecttx.Config{Idempotency: &connecttx.Idempotency{Keys: keysOf(t, proxied, time.Minute)}})
		s.handle = s.insert
		res, _, err := s.placeBy("tea", nil, "k")
		require.NoError(t, err)
		require.Equal(t, "placed tea", res.Msg.GetValue())
		require.Equal(t, int32(1), cuts.Load())
		require.Equal(t, 1, s.placed())
	})
}

func TestAKeyThatCannotServeIsRefused(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, sqlite())
	s := keyed(t, db, nil)
	_, err := s.call(place, s.place) // without a key
	require.NoError(t, err)
	s.handle = func(ctx context.Context) error { // as a handler must not
		tx, _ := s.adapter.TxFrom(ctx)
		return errors.Join(s.place(ctx), tx.Commit())
	}
	_, _, err = s.placeBy("tea", nil, "k")
	require.Equal(t, connect.CodeUnknown, connect.CodeOf(err))
	_, _, err = s.placeBy("tea", nil, "k")
	require.Equal(t, connect.CodeAlreadyExists, connect.CodeOf(err))
	require.ErrorContains(t, err, "its answer was not stored")

	outer := adaptertest.Adapter(t, s.db, s.writer)
	s.serve(connecttx.Config{Transactor: outer}, connecttx.Config{Idempotency: &connecttx.Idempotency{Keys: keysOf(t, db, 0)}})
	_, _, err = s.placeBy("tea", nil, "k")
	require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
	require.ErrorContains(t, s.wait(), "carries a transaction of the pool")
	require.Equal(t, 2, s.placed())
}

// The interceptor gives an error for messages of another codec, and rolls back.
func TestCallsWithKeysNeedProtocolBuffers(t *testing.T) {
	t.Parallel()
	_, err := connecttx.Config{Idempotency: &connecttx.Idempotency{}}.ToInterceptor()
	require.ErrorContains(t, err, "Config.Idempotency.Keys")
	db := testdb.Open(t, sqlite())
	s := keyed(t, db, nil)
	interceptor, err := connecttx.Config{Transactor: s.adapter, Idempotency: &connecttx.Idempotency{Keys: keysOf(t, db, 0)}}.ToInterceptor()
	require.NoError(t, err)
	place := interceptor.WrapUnary(func(ctx context.Context, _ connect.AnyRequest) (connect.AnyResponse, error) {
		return connect.NewResponse(&struct{}{}), s.insert(ctx)
	})
	other := connect.NewRequest(&struct{}{})
	other.Header().Set(connecttx.KeyHeader, "k")
	_, err = place(t.Context(), other)
	require.Equal(t, connect.CodeInternal, connect.CodeOf(err))
	require.ErrorContains(t, err, "the request is a *struct {}")
	req := connect.NewRequest(wrapperspb.String("tea"))
	req.Header().Set(connecttx.KeyHeader, "k")
	_, err = place(t.Context(), req)
	require.Equal(t, connect.CodeInternal, connect.CodeOf(err))
	require.ErrorContains(t, err, "the response is a *struct {}")
	require.Zero(t, s.placed())
}

// An answer of another version of the service may be one that this version cannot read.
func TestAStoredAnswerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, sqlite())
	s := keyed(t, db, func(c *connecttx.Config) { c.RollbackOn = func(context.Context, error) bool { return false } })
	s.handle = s.insert
	stored := map[string]string{"no message": "\xff", "an unknown type": "\x0a\x03a/b", "a failure": "{"}
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		_, _, err := s.placeBy("tea", nil, name)
		require.NoError(t, err)
		status := 0
		if name == "a failure" {
			status = int(connect.CodeAborted)
		}
		_, err = s.db.ExecContext(t.Context(), "UPDATE idempotency_key SET body = ?, status = ?", []byte(stored[name]), status)
		require.NoError(t, err)
		_, _, err = s.placeBy("tea", nil, name)
		require.Equal(t, connect.CodeInternal, connect.CodeOf(err))
		require.ErrorContains(t, err, "reading a stored answer")
	}
}
