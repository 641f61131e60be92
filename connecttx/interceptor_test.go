package connecttx_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/connecttx"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

var order = http.Header{"Order": {"1"}}

// The client gets a success, with headers and trailers, after the commit.
func TestAnAnswerLeavesAfterTheCommit(t *testing.T) {
	t.Parallel()
	eachProtocol(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB, protocol ...connect.ClientOption) {
		s := openShop(t, db)
		s.header = order
		for n, procedure := range []string{place, simple} {
			res, err := s.call(procedure, s.place, protocol...)
			require.NoError(t, err)
			orders, events := s.count()
			require.Equal(t, []int{n + 1, n + 1}, []int{orders, events})
			require.Equal(t, "placed tea", res.Msg.GetValue())
			require.Equal(t, []string{"1", "1", "1"}, []string{
				res.Header().Get("Request-Id"), res.Header().Get("Order"), res.Trailer().Get("Trailer-Order"),
			})
		}
		s.want(2, "commit", "commit")
	})
}

func TestAnErrorAndAPanicRollBack(t *testing.T) {
	t.Parallel()
	eachProtocol(t, []testdb.Target{sqlite()}, func(t *testing.T, db *testdb.DB, protocol ...connect.ClientOption) {
		s := openShop(t, db)
		err := s.fails(func(ctx context.Context) error { return errors.Join(s.place(ctx), placedBefore(t)) }, protocol...)
		require.Equal(t, connect.CodeAlreadyExists, err.Code())
		require.Equal(t, "placed before", err.Message())
		require.Len(t, err.Details(), 1)
		require.Equal(t, []string{"1", "1"}, []string{err.Meta().Get("Order"), err.Meta().Get("Outside")}, "the metadata of a failure is sent")
		s.want(0, "rollback")

		plain := s.fails(func(ctx context.Context) error { return errors.Join(s.place(ctx), errTest) }, protocol...)
		require.Equal(t, connect.CodeUnknown, plain.Code())
		s.want(0, "rollback", "rollback")
	})
}

// placedBefore is a failure with everything that a failure of connect may have.
func placedBefore(t *testing.T) *connect.Error {
	t.Helper()
	failure := connect.NewError(connect.CodeAlreadyExists, errors.New("placed before"))
	detail, err := connect.NewErrorDetail(durationpb.New(time.Minute))
	require.NoError(t, err)
	failure.AddDetail(detail)
	failure.Meta().Set("Order", "1")
	return failure
}

// A panic rolls back, and takes the headers back that the handler had set, with the recovery of connect
// outside, inside, or with that of net/http.
func TestAPanicRollsBack(t *testing.T) {
	t.Parallel()
	eachProtocol(t, []testdb.Target{sqlite()}, func(t *testing.T, db *testdb.DB, protocol ...connect.ClientOption) {
		s := openShop(t, db)
		s.header = order
		own, panics := connect.WithInterceptors(connecttx.NewInterceptor(s.adapter)), func(ctx context.Context) error {
			_ = s.place(ctx)
			panic(http.ErrAbortHandler) // which net/http does not log
		}
		boom := func(ctx context.Context) error {
			_ = s.place(ctx)
			panic("boom")
		}
		outcomes, when := []string{}, []string{}
		recovery := connect.WithRecover(func(ctx context.Context, spec connect.Spec, header http.Header, r any) error {
			when = s.record.Outcomes()
			return recovering(ctx, spec, header, r)
		})
		for name, options := range map[string][]connect.HandlerOption{"outside": {recovery, own}, "inside": {own, recovery}} {
			s.serveWith(options...)
			_, err := s.call(simple, boom, protocol...)
			require.Equal(t, connect.CodeInternal, connect.CodeOf(err))
			require.ErrorContains(t, err, "panic")
			outcomes = append(outcomes, "rollback")
			s.want(0, outcomes...)
			if name == "outside" {
				require.Equal(t, outcomes, when, "before the request ends")
			}
		}
		s.serveWith(own)
		_, err := s.call(simple, panics, protocol...)
		require.Error(t, err)
		s.record.Eventually(t, append(outcomes, "rollback")...)
		s.want(0, append(outcomes, "rollback")...)
	})
}

func TestAPanicTakesHeadersBack(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()))
	s.header = order
	sent := s.fails(func(context.Context) error { return errTest }).Meta().Get("Request-Id")
	_, err := s.call(simple, func(context.Context) error { panic("boom") })
	var failure *connect.Error
	require.ErrorAs(t, err, &failure)
	require.Empty(t, failure.Meta().Get("Order"))
	require.Equal(t, sent, failure.Meta().Get("Request-Id"), "the header of an interceptor outside")
}

// Nothing of a success is sent when the commit fails, and nothing of what the database said. What an
// interceptor outside adds to the answer is sent.
func TestAFailedCommitLeavesNoSuccess(t *testing.T) {
	t.Parallel()
	eachProtocol(t, committing(), func(t *testing.T, db *testdb.DB, protocol ...connect.ClientOption) {
		s := openShop(t, db)
		s.header = order
		// connect 1.19.0 sends no header of the context with an error.
		sent := s.fails(func(context.Context) error { return errTest }, protocol...).Meta().Get("Request-Id")
		require.ErrorIs(t, s.wait(), errTest)
		for _, procedure := range []string{place, simple} {
			_, err := s.call(procedure, func(ctx context.Context) error { return errors.Join(s.place(ctx), s.doom(ctx)) }, protocol...)
			var failure *connect.Error
			require.ErrorAs(t, err, &failure)
			require.Equal(t, "internal: the transaction did not commit", failure.Error())
			require.Empty(t, failure.Details())
			require.Equal(t, []string{sent, "1"}, []string{failure.Meta().Get("Request-Id"), failure.Meta().Get("Outside")})
			require.Empty(t, failure.Meta().Get("Order"), procedure)
			require.Empty(t, failure.Meta().Get("Trailer-Order"), procedure)
			var commit *connecttx.CommitError
			require.ErrorAs(t, s.wait(), &commit, "interceptors outside get the cause")
			require.ErrorContains(t, commit, commit.Err.Error())
		}
		s.want(0, "rollback", "rollback")
	})
}

func TestALostAnswerToCommitIsUnknown(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main()[:2], func(t *testing.T, direct *testdb.DB) {
		adaptertest.Exec(t, direct.DB, "CREATE TABLE orders (id INT)", "CREATE TABLE written (id VARCHAR(64) NOT NULL PRIMARY KEY)")
		proxied, cuts := direct.CutCommits(t)
		writer, record := adaptertest.WriterWithoutTable(t, proxied.DB, string(direct.Kind))
		s := &shop{t: t, db: direct.DB, writer: writer, record: record, adapter: adaptertest.Adapter(t, proxied.DB, writer)}
		err := s.serve().fails(s.place)
		require.Equal(t, "unknown: the outcome of the transaction is unknown", err.Error())
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
	report func(ctx context.Context, event string)
}

type watchedTx struct {
	outbox.Transaction
	ctx    context.Context
	report func(ctx context.Context, event string)
}

func (w watched) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	w.report(ctx, "begin")
	txCtx, tx, err := w.Transactor.Begin(ctx, opts)
	return txCtx, watchedTx{tx, ctx, w.report}, err
}

func (w watchedTx) Commit() error {
	w.report(w.ctx, "commit")
	err := w.Transaction.Commit()
	w.report(w.ctx, "committed")
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
				again := &shop{t: t, db: s.db, writer: s.writer, record: s.record, adapter: s.adapter}
				at := func(ctx context.Context, name string) {
					if name != moment.name {
						return
					}
					again.kill()
					if notices {
						select {
						case <-ctx.Done():
						case <-time.After(30 * time.Second):
							t.Error("the server has not noticed that the client was killed")
						}
					}
				}
				again.serve(connecttx.Config{Transactor: watched{s.adapter, at}})
				_, err := again.call(place, func(ctx context.Context) error {
					at(ctx, "before")
					err := s.place(ctx)
					at(ctx, "after")
					return err
				})
				_ = again.wait()
				orders, events := s.count()
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

// A handler that returns a success although the call's context has ended is not believed.
func TestACallThatHasEndedCommitsNothing(t *testing.T) {
	t.Parallel()
	for code, cause := range map[connect.Code]error{
		connect.CodeCanceled: context.Canceled, connect.CodeDeadlineExceeded: context.DeadlineExceeded,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			s := openShop(t, testdb.Open(t, sqlite()))
			// The call ends on the server alone, so that the client sees what the server answers.
			endable := func(next connect.UnaryFunc) connect.UnaryFunc {
				return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
					ctx, end := context.WithCancelCause(ctx)
					defer end(nil)
					return next(context.WithValue(ctx, endKey{}, end), req)
				}
			}
			s.serveWith(connect.WithInterceptors(connect.UnaryInterceptorFunc(s.outside), connect.UnaryInterceptorFunc(endable), connecttx.NewInterceptor(s.adapter)))
			failure := s.fails(func(ctx context.Context) error {
				err := s.place(ctx)
				ctx.Value(endKey{}).(context.CancelCauseFunc)(cause)
				return err
			})
			require.Equal(t, code.String()+": the call has ended", failure.Error())
			var commit *connecttx.CommitError
			require.ErrorAs(t, s.wait(), &commit)
			s.record.Eventually(t, "rollback")
			s.want(0, "rollback")
		})
	}
}

type endKey struct{}

func TestStreamsAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()))
	s.stream = func(ctx context.Context) error {
		_, err := s.writer.Write(ctx, adaptertest.Event())
		for range 2 {
			if err := outbox.InTx(ctx, s.adapter, s.place); err != nil {
				return err
			}
		}
		return connect.NewError(connect.CodeOutOfRange, err)
	}
	client := connect.NewClient[text, text](s.client, s.url+watch)
	stream, err := client.CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String("tea")))
	require.NoError(t, err)
	require.False(t, stream.Receive())
	require.Equal(t, connect.CodeOutOfRange, connect.CodeOf(stream.Err()))
	require.ErrorContains(t, stream.Err(), watch+", which is a stream; write in outbox.InTx")
	require.NoError(t, stream.Close())
	s.want(2, "commit", "commit")
}

func TestSkipperMethodsAndRollbackOn(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()), connecttx.Config{ReadOnlyMethods: []string{place}})
	var err error
	without := func(ctx context.Context) error {
		_, err = s.writer.Write(ctx, adaptertest.Event())
		return nil
	}
	call := func(procedure string, options ...connect.ClientOption) {
		t.Helper()
		_, failed := s.call(procedure, without, options...)
		require.NoError(t, failed)
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
	}
	call(place)
	require.ErrorContains(t, err, place+", which is one of Config.ReadOnlyMethods")
	reads := connect.WithIdempotency(connect.IdempotencyNoSideEffects)
	for _, options := range [][]connect.ClientOption{nil, {reads, connect.WithHTTPGet()}, {connect.WithGRPC()}} {
		call(list, options...)
		require.ErrorContains(t, err, list+", whose idempotency_level in the schema is NO_SIDE_EFFECTS")
	}
	s.serve(connecttx.Config{Skipper: func(_ context.Context, req connect.AnyRequest) bool { return req.Spec().Procedure == place }})
	call(place)
	s.want(0)

	s.serve(connecttx.Config{
		TxOptions:  &sql.TxOptions{Isolation: sql.LevelSerializable},
		RollbackOn: func(_ context.Context, err error) bool { return connect.CodeOf(err) != connect.CodeUnauthenticated },
	})
	counted := s.fails(func(ctx context.Context) error {
		return errors.Join(s.place(ctx), connect.NewError(connect.CodeUnauthenticated, errors.New("who?")))
	})
	require.Equal(t, "unauthenticated: who?", counted.Error())
	s.want(1, "commit")

	s.serve(connecttx.Config{RollbackOn: func(context.Context, error) bool { panic("boom") }})
	require.Equal(t, connect.CodeInternal, s.fails(s.place).Code())
	s.want(1, "commit", "rollback")
}

// Two interceptors of one adapter act once; of one pool, the inner transaction is a
// savepoint.
func TestTwoInterceptors(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()))
	counted := &counting{Transactor: s.adapter}
	s.serve(connecttx.Config{Transactor: counted}, connecttx.Config{Transactor: counted})
	_, err := s.call(place, s.place)
	require.NoError(t, err)
	s.want(1, "commit")
	require.Equal(t, int32(1), counted.begun.Load())
	s.serve(connecttx.Config{}, connecttx.Config{Transactor: adaptertest.Adapter(t, s.db, s.writer)})
	_, err = s.call(place, s.place)
	require.NoError(t, err)
	s.fails(func(ctx context.Context) error { return errors.Join(s.place(ctx), errTest) })
	s.fails(func(ctx context.Context) error { return errors.Join(s.place(ctx), s.doom(ctx)) })
	s.want(2, "commit", "commit", "rollback", "rollback")
}

// counting counts the transactions that begin.
type counting struct {
	outbox.Transactor
	begun atomic.Int32
}

func (c *counting) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	c.begun.Add(1)
	return c.Transactor.Begin(ctx, opts)
}

// A service may share an interceptor between its handlers and its clients, and call in a transaction.
func TestCallsOfAClientAreLeftAlone(t *testing.T) {
	t.Parallel()
	s, other := openShop(t, testdb.Open(t, sqlite())), openShop(t, testdb.Open(t, sqlite()))
	shared := connect.WithInterceptors(connecttx.NewInterceptor(s.adapter))
	other.handle = func(context.Context) error { return nil }
	s.serveWith(shared)
	_, err := s.call(place, func(ctx context.Context) error {
		clients := connect.NewClient[text, text](other.client, other.url+place, shared)
		_, err := clients.CallUnary(ctx, connect.NewRequest(wrapperspb.String("tea")))
		return errors.Join(s.place(ctx), err)
	}, shared)
	require.NoError(t, err)
	s.want(1, "commit")

	other.stream = func(context.Context) error { return nil }
	stream, err := connect.NewClient[text, text](other.client, other.url+watch, shared).CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String("tea")))
	require.NoError(t, err)
	require.False(t, stream.Receive())
	require.NoError(t, errors.Join(stream.Err(), stream.Close()))
}

// The request is complete before the transaction begins: a slow client, and one that sends nonsense,
// hold no connection.
func TestARequestThatCannotBeReadHasNoTransaction(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()), connecttx.Config{Transactor: broken{}})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+place, bytes.NewReader([]byte("{")))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := s.client.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusBadRequest, res.StatusCode)
	require.Empty(t, s.ended)
}

func TestATransactionOfAnotherPool(t *testing.T) {
	t.Parallel()
	s, other := openShop(t, testdb.Open(t, sqlite())), openShop(t, testdb.Open(t, sqlite()))
	err := s.fails(func(ctx context.Context) error {
		_, err := other.writer.Write(ctx, adaptertest.Event())
		return errors.Join(s.place(ctx), err)
	})
	require.ErrorContains(t, err, outbox.ErrForeignTransaction.Error())
	s.want(0, "rollback")
}

func TestATransactionThatTheHandlerEndedHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()))
	err := s.fails(func(ctx context.Context) error {
		tx, _ := s.adapter.TxFrom(ctx)
		return errors.Join(s.place(ctx), tx.Commit())
	})
	require.Equal(t, connect.CodeUnknown, err.Code())
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
	eachProtocol(t, []testdb.Target{sqlite()}, func(t *testing.T, db *testdb.DB, protocol ...connect.ClientOption) {
		s := openShop(t, db, connecttx.Config{Transactor: broken{}})
		err := s.fails(func(context.Context) error { panic("it must not run") }, protocol...)
		require.Equal(t, "unavailable: no transaction could begin", err.Error())
		require.ErrorIs(t, s.wait(), errTest)
	})
}

// With the middleware of httptx around handlers that have the interceptor, a call is a savepoint, a key is
// refused, and a commit that fails has an answer without a code.
func TestTheMiddlewareOfHTTPAround(t *testing.T) {
	t.Parallel()
	eachProtocol(t, []testdb.Target{sqlite()}, func(t *testing.T, db *testdb.DB, protocol ...connect.ClientOption) {
		s := openShop(t, db)
		s.serveBehind(httptx.Transaction(s.adapter), connect.WithInterceptors(connecttx.NewInterceptor(s.adapter)))
		_, err := s.call(place, s.place, protocol...)
		require.NoError(t, err)
		s.want(1, "commit")
		failed := s.fails(func(ctx context.Context) error { return errors.Join(s.place(ctx), placedBefore(t)) }, protocol...)
		require.Equal(t, connect.CodeAlreadyExists, failed.Code())
		lost := s.fails(func(ctx context.Context) error { return errors.Join(s.place(ctx), s.doom(ctx)) }, protocol...)
		require.Equal(t, connect.CodeUnknown, lost.Code())
		require.ErrorContains(t, lost, "500")
		orders, events := s.count()
		require.Equal(t, []int{1, 1}, []int{orders, events})

		interceptor, err := connecttx.Config{Transactor: s.adapter, Idempotency: &connecttx.Idempotency{Keys: keysOf(t, db, 0)}}.ToInterceptor()
		require.NoError(t, err)
		s.serveBehind(httptx.Transaction(s.adapter), connect.WithInterceptors(connect.UnaryInterceptorFunc(s.outside), interceptor))
		_, _, err = s.placeBy("tea", protocol, "k")
		require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
		require.ErrorContains(t, s.wait(), "carries a transaction of the pool")
	})
}

// connect encodes a response after the commit.
func TestAResponseThatCannotBeSentWasCommitted(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()))
	s.serveWith(connect.WithInterceptors(connecttx.NewInterceptor(s.adapter)), connect.WithSendMaxBytes(1))
	require.Equal(t, connect.CodeResourceExhausted, s.fails(s.place).Code())
	s.want(1, "commit")
}

func TestTheConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := connecttx.Config{ReadOnlyMethods: []string{"/shop.v1.Orders/List", "List"}}.ToInterceptor()
	require.ErrorContains(t, err, "Config.Transactor is required")
	require.ErrorContains(t, err, `Config.ReadOnlyMethods[1] is "List"`)
	_, err = connecttx.Config{Transactor: (*sqltx.Adapter)(nil)}.ToInterceptor()
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Panics(t, func() { connecttx.NewInterceptor(nil) })
}
