package grpctx_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/grpctx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// The client gets OK, with headers and trailers, after the commit.
func TestAnOKLeavesAfterTheCommit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main()[2:], func(t *testing.T, db *testdb.DB) {
		s := openShop(t, db)
		var header, trailer metadata.MD
		require.NoError(t, s.call(func(ctx context.Context) error {
			return errors.Join(s.place(ctx), headers(ctx))
		}, grpc.Header(&header), grpc.Trailer(&trailer)))
		s.want(1, "commit")
		require.Equal(t, []string{"1", "1", "1"}, append(append(header["order"], header["sent"]...), trailer["count"]...))
	})
}

func TestAnErrorAndAPanicRollBack(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()))
	var trailer metadata.MD
	err := s.call(func(ctx context.Context) error {
		return errors.Join(s.place(ctx), headers(ctx), status.Error(codes.AlreadyExists, "placed before"))
	}, grpc.Trailer(&trailer))
	require.Equal(t, codes.AlreadyExists, status.Code(err))
	require.Equal(t, []string{"1"}, trailer["count"], "the trailers of a failure are sent")
	s.want(0, "rollback")
	err = s.call(func(ctx context.Context) error {
		_ = s.place(ctx)
		panic("boom")
	})
	require.Equal(t, codes.Internal, status.Code(err))
	require.ErrorContains(t, err, "panic")
	s.want(0, "rollback", "rollback")
}

// Nothing of a success is sent when the commit fails, and nothing of what the
// database said.
func TestAFailedCommitLeavesNoSuccess(t *testing.T) {
	t.Parallel()
	testdb.Each(t, committing(), func(t *testing.T, db *testdb.DB) {
		s := openShop(t, db)
		var header, trailer metadata.MD
		err := s.call(func(ctx context.Context) error {
			return errors.Join(s.place(ctx), s.doom(ctx), headers(ctx))
		}, grpc.Header(&header), grpc.Trailer(&trailer))
		require.Equal(t, "rpc error: code = Internal desc = the transaction did not commit", err.Error())
		for _, key := range []string{"order", "sent"} {
			require.Empty(t, header[key])
		}
		require.Empty(t, trailer["count"])
		var commit *grpctx.CommitError
		require.ErrorAs(t, s.wait(), &commit, "interceptors outside get the cause")
		s.want(0, "rollback")
	})
}

func TestALostAnswerToCommitIsUnknown(t *testing.T) {
	t.Parallel()
	testdb.Each(t, []testdb.Target{adaptertest.Main()[0], adaptertest.Main()[1]}, func(t *testing.T, direct *testdb.DB) {
		adaptertest.Exec(t, direct.DB, "CREATE TABLE orders (id INT)", "CREATE TABLE written (id VARCHAR(64) NOT NULL PRIMARY KEY)")
		proxied, cuts := direct.CutCommits(t)
		writer, record := adaptertest.WriterWithoutTable(t, proxied.DB, string(direct.Kind))
		s := &shop{t: t, db: direct.DB, writer: writer, record: record, adapter: adaptertest.Adapter(t, proxied.DB, writer)}
		err := s.serve().call(s.place)
		require.Equal(t, codes.Unknown, status.Code(err))
		require.ErrorIs(t, s.wait(), outbox.ErrOutcomeUnknown)
		require.Equal(t, int32(1), cuts.Load())
		s.want(1, "unknown")
	})
}

// moments are those at which a client is killed, and whether the order is there
// afterwards when the server has noticed: -1 means either.
var moments = []struct {
	name   string
	placed int
}{{"begin", 0}, {"before", 0}, {"after", 0}, {"commit", -1}, {"committed", 1}}

type watched struct {
	outbox.Transactor
	report func(event string)
}

type watchedTx struct {
	outbox.Transaction
	report func(event string)
}

func (w watched) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	w.report("begin")
	ctx, tx, err := w.Transactor.Begin(ctx, opts)
	return ctx, watchedTx{tx, w.report}, err
}

func (w watchedTx) Commit() error {
	w.report("commit")
	err := w.Transaction.Commit()
	w.report("committed")
	return err
}

// A client that is killed at any moment leaves an order with its event, or neither.
func TestAClientThatIsKilledLeavesBothOrNeither(t *testing.T) {
	t.Parallel()
	testdb.Each(t, committing(), func(t *testing.T, db *testdb.DB) {
		s := openShop(t, db)
		placed := 0
		for _, moment := range moments {
			for _, notices := range []bool{true, false} {
				var call context.Context
				at := func(name string) {
					if name != moment.name {
						return
					}
					s.kill()
					if notices && call != nil {
						select {
						case <-call.Done():
						case <-time.After(30 * time.Second):
							t.Error("the server has not noticed that the client was killed")
						}
					}
				}
				again := &shop{t: t, db: s.db, writer: s.writer, record: s.record, adapter: s.adapter}
				s = again.serve(grpctx.Config{Transactor: watched{s.adapter, at}, Extract: func(ctx context.Context, _ grpctx.Carrier) context.Context {
					call = ctx //nolint:fatcontext // what the test is about.
					return ctx
				}})
				err := s.call(func(ctx context.Context) error {
					at("before")
					err := s.place(ctx)
					at("after")
					return err
				})
				_ = s.wait()
				var orders, events int
				row := s.db.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM written)")
				require.NoError(t, row.Scan(&orders, &events))
				require.Equal(t, orders, events, moment.name)
				if err == nil {
					require.Equal(t, placed+1, orders, "%s: the client saw a success", moment.name)
				}
				if notices && moment.placed >= 0 {
					require.Equal(t, placed+moment.placed, orders, moment.name)
				}
				placed = orders
			}
		}
	})
}

// A handler that returns a success although the call's context has ended is not
// believed.
func TestACallThatIsCancelledCommitsNothing(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()))
	ctx, cancel := context.WithCancel(t.Context())
	err := s.callIn(ctx, func(ctx context.Context) error {
		err := s.place(ctx)
		cancel()
		<-ctx.Done()
		return err
	})
	require.Equal(t, codes.Canceled, status.Code(err))
	var commit *grpctx.CommitError
	ended := s.wait()
	require.ErrorAs(t, ended, &commit)
	require.Equal(t, codes.Canceled, status.Code(ended))
	require.Eventually(t, func() bool { return len(s.record.Outcomes()) == 1 }, 20*time.Second, time.Millisecond)
	s.want(0, "rollback")
}

func TestStreamsAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()))
	s.stream = func(ctx context.Context) error {
		if err := s.place(ctx); !errors.Is(err, outbox.ErrNoTransaction) {
			return status.Error(codes.Internal, "a stream has a transaction")
		}
		for range 2 {
			if err := outbox.InTx(ctx, s.adapter, s.place); err != nil {
				return err
			}
		}
		return status.Error(codes.OutOfRange, "the end")
	}
	stream, err := healthpb.NewHealthClient(s.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.OutOfRange, status.Code(err), err)
	s.want(2, "commit", "commit")
}

func TestSkipperMethodsAndRollbackOn(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, sqlite())
	s := openShop(t, db, grpctx.Config{ReadOnlyMethods: []string{healthpb.Health_Check_FullMethodName}})
	var err error
	without := func(ctx context.Context) error {
		_, err = s.writer.Write(ctx, adaptertest.Event())
		return nil
	}
	require.NoError(t, s.call(without))
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	require.ErrorContains(t, err, "/grpc.health.v1.Health/Check, which is one of Config.ReadOnlyMethods")
	s.serve(grpctx.Config{Skipper: func(_ context.Context, info *grpc.UnaryServerInfo) bool {
		return info.FullMethod == healthpb.Health_Check_FullMethodName
	}})
	require.NoError(t, s.call(without))
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	s.want(0)

	s.serve(grpctx.Config{
		TxOptions:  &sql.TxOptions{Isolation: sql.LevelSerializable},
		RollbackOn: func(_ context.Context, err error) bool { return status.Code(err) != codes.Unauthenticated },
	})
	counted := s.call(func(ctx context.Context) error {
		return errors.Join(s.place(ctx), status.Error(codes.Unauthenticated, "who?"))
	})
	require.Equal(t, codes.Unauthenticated, status.Code(counted))
	s.want(1, "commit")
}

// Two interceptors of one adapter act once; of one pool, the inner transaction is a
// savepoint.
func TestTwoInterceptors(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, sqlite())
	s := openShop(t, db, grpctx.Config{}, grpctx.Config{})
	require.NoError(t, s.call(s.place))
	s.want(1, "commit")
	s.serve(grpctx.Config{}, grpctx.Config{Transactor: adaptertest.Adapter(t, s.db, s.writer)})
	require.NoError(t, s.call(s.place))
	require.Error(t, s.call(func(ctx context.Context) error { return errors.Join(s.place(ctx), errTest) }))
	require.Error(t, s.call(func(ctx context.Context) error { return errors.Join(s.place(ctx), s.doom(ctx)) }))
	s.want(2, "commit", "commit", "rollback", "rollback")
}

func TestATransactionOfAnotherPool(t *testing.T) {
	t.Parallel()
	s, other := openShop(t, testdb.Open(t, sqlite())), openShop(t, testdb.Open(t, sqlite()))
	err := s.call(func(ctx context.Context) error {
		_, err := other.writer.Write(ctx, adaptertest.Event())
		return errors.Join(s.place(ctx), err)
	})
	require.ErrorContains(t, err, outbox.ErrForeignTransaction.Error())
	s.want(0, "rollback")
}

func TestATransactionThatTheHandlerEndedHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()))
	err := s.call(func(ctx context.Context) error {
		tx, _ := s.adapter.TxFrom(ctx)
		return errors.Join(s.place(ctx), tx.Commit())
	})
	require.Equal(t, codes.Unknown, status.Code(err))
	ended := s.wait()
	require.ErrorIs(t, ended, outbox.ErrOutcomeUnknown)
	require.ErrorIs(t, ended, sql.ErrTxDone)
	require.ErrorContains(t, ended, "leave Commit and Rollback to the interceptor")
}

type broken struct{}

func (broken) Begin(context.Context, *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	return nil, nil, errTest
}

func TestATransactionThatCannotBegin(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()), grpctx.Config{Transactor: broken{}})
	err := s.call(func(context.Context) error { panic("it must not run") })
	require.Equal(t, "rpc error: code = Unavailable desc = no transaction could begin", err.Error())
	require.ErrorIs(t, s.wait(), errTest)
}

// textMapCarrier has the methods of OpenTelemetry's propagation.TextMapCarrier.
type textMapCarrier interface {
	Get(key string) string
	Set(key, value string)
	Keys() []string
}

// The context of the call carries the trace of the call's metadata.
func TestMetadataCarriesTheTrace(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	db := testdb.Open(t, sqlite())
	type parentKey struct{}
	s := openShop(t, db, grpctx.Config{Extract: func(ctx context.Context, md grpctx.Carrier) context.Context {
		var carrier textMapCarrier = md
		return context.WithValue(ctx, parentKey{}, carrier.Get("traceparent"))
	}})
	var got any
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent)
	require.NoError(t, s.callIn(ctx, func(ctx context.Context) error {
		got = ctx.Value(parentKey{})
		return nil
	}))
	require.Equal(t, parent, got)
	require.Contains(t, grpctx.Carrier(metadata.Pairs("a", "b")).Keys(), "a")
}

func TestTheConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := grpctx.Config{ReadOnlyMethods: []string{"/shop.Orders/List", "List"}}.ToInterceptor()
	require.ErrorContains(t, err, "Config.Transactor is required")
	require.ErrorContains(t, err, `Config.ReadOnlyMethods[1] is "List"`)
	_, err = grpctx.Config{Transactor: (*sqltx.Adapter)(nil)}.ToInterceptor()
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Panics(t, func() { grpctx.UnaryServerInterceptor(nil) })
}
