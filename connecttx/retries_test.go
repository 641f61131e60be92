package connecttx_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboxkit/outbox-go/connecttx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/txretry"
)

// openContended is a shop whose transactions can be refused.
func openContended(t *testing.T, db *testdb.DB, config connecttx.Config) (s *shop, conflict func(ctx context.Context) error) {
	t.Helper()
	s = openShop(t, db)
	target, opts := adaptertest.Conflicting(t, db)
	if target != db {
		s.db = target.DB
		s.writer, s.record = adaptertest.WriterWithoutTable(t, target.DB, string(target.Kind))
		s.adapter = adaptertest.Adapter(t, target.DB, s.writer)
	}
	config.TxOptions = opts
	return s.serve(config), func(ctx context.Context) error {
		tx, _ := s.adapter.TxFrom(ctx)
		return adaptertest.Conflict(t, target, func(query string) error {
			_, err := tx.ExecContext(ctx, query)
			return err
		})
	}
}

// A call whose transaction the database refused runs again, whatever error the handler returned.
func TestAConflictRunsTheConnectCallAgain(t *testing.T) {
	t.Parallel()
	eachProtocol(t, committing(), func(t *testing.T, db *testdb.DB, protocol ...connect.ClientOption) {
		s, conflict := openContended(t, db, connecttx.Config{Retries: 1})
		for i, hidden := range []bool{false, true} {
			attempts := 0
			response, err := s.call(place, func(ctx context.Context) error {
				attempts++
				info, _ := connect.CallInfoForHandlerContext(ctx)
				info.ResponseHeader().Add("Attempt", "x")
				require.Empty(t, info.RequestHeader().Get("Changed"))
				info.RequestHeader().Set("Changed", "yes")
				if !txretry.Last(ctx) {
					if err := conflict(ctx); !hidden {
						return err
					}
					return connect.NewError(connect.CodeUnavailable, errTest)
				}
				return s.place(ctx)
			}, protocol...)
			require.NoError(t, err)
			require.Equal(t, 2, attempts)
			require.Equal(t, []string{"x"}, response.Header().Values("Attempt"), "of the second attempt alone")
			require.Equal(t, i+1, adaptertest.Written(t, s.db))
		}
		attempts := 0
		err := s.fails(func(ctx context.Context) error {
			attempts++
			require.Error(t, conflict(ctx))
			return connect.NewError(connect.CodeAborted, errTest)
		}, protocol...)
		require.Equal(t, connect.CodeAborted, err.Code(), "the last attempt's error is the client's")
		require.Equal(t, 2, attempts)
		attempts = 0
		s.fails(func(ctx context.Context) error {
			attempts++
			txretry.Stop(ctx)
			return conflict(ctx)
		}, protocol...)
		require.Equal(t, 1, attempts)
	})
}

// refused is PostgreSQL's serialization failure.
type refused struct{}

func (refused) Error() string    { return "refused" }
func (refused) SQLState() string { return "40001" }

// A handler may change its message and its headers.
func TestAnotherAttemptGetsTheMessageThatCame(t *testing.T) {
	t.Parallel()
	s := openShop(t, testdb.Open(t, sqlite()))
	interceptor, err := connecttx.Config{Transactor: s.adapter, Retries: 1}.ToInterceptor()
	require.NoError(t, err)
	attempts := 0
	handler := connect.NewUnaryHandler(place, func(_ context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
		attempts++
		require.Equal(t, "tea", req.Msg.GetValue())
		require.Empty(t, req.Header().Get("Changed"))
		req.Msg.Value = "coffee"
		req.Header().Set("Changed", "yes")
		if attempts == 1 {
			return nil, refused{}
		}
		return connect.NewResponse(wrapperspb.String("placed")), nil
	}, connect.WithInterceptors(interceptor))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	_, err = connect.NewClient[text, text](server.Client(), server.URL+place).CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("tea")))
	require.NoError(t, err)
	require.Equal(t, 2, attempts)
}

// What another pool has committed is not done again.
func TestAnInnerCommitIsNotRepeated(t *testing.T) {
	t.Parallel()
	outer, conflict := openContended(t, testdb.Open(t, sqlite()), connecttx.Config{})
	inner := openShop(t, testdb.Open(t, sqlite()))
	outer.serve(connecttx.Config{Retries: 3, RollbackOn: func(context.Context, error) bool { return true }}, connecttx.Config{Transactor: inner.adapter})
	attempts := 0
	_, err := outer.call(place, func(ctx context.Context) error {
		attempts++
		require.Error(t, conflict(ctx))
		return inner.place(ctx)
	})
	require.NoError(t, err)
	require.Equal(t, 1, attempts)
	require.Equal(t, 1, adaptertest.Written(t, inner.db))
}

func TestRetriesAreChecked(t *testing.T) {
	t.Parallel()
	_, err := connecttx.Config{Transactor: broken{}, Retries: -1}.ToInterceptor()
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "Config.Retries", field.Field)
}
