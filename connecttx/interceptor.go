package connecttx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox"
)

// Config configures the interceptor. [NewInterceptor] is the short form of [Config.ToInterceptor].
type Config struct {
	// Skipper selects the unary calls that get no transaction. By default only calls of the
	// ReadOnlyMethods, and of methods that the schema declares as free of side effects, get no
	// transaction.
	Skipper func(ctx context.Context, req connect.AnyRequest) bool
	// Transactor begins the transactions: an adapter. Required.
	Transactor outbox.Transactor
	// TxOptions are the options of each transaction. Nil: the database's defaults.
	TxOptions *sql.TxOptions
	// ReadOnlyMethods are procedures, such as "/shop.v1.Orders/List", that get no transaction. Methods
	// with idempotency_level = NO_SIDE_EFFECTS in their schema, which clients may call with GET, get no
	// transaction in any case. Defaults to an empty list.
	ReadOnlyMethods []string
	// Idempotency lets clients send calls again, by keys. Nil: keys are not looked at.
	Idempotency *Idempotency
	// Retries is how often a call is run again whose transaction the database refused because of
	// another transaction: see package txretry. The handler then runs from its beginning, and hooks and
	// callbacks of the refused attempt see a rollback. [txretry.Stop] forbids another attempt. Of nested
	// interceptors the outermost one decides. A call whose message is no protocol buffer runs once.
	// Defaults to 0.
	Retries int
	// RollbackOn decides between COMMIT and ROLLBACK. RollbackOn gets the error that the handler
	// returned, or nil. A panic rolls back without a call. Defaults to a rollback for any error.
	RollbackOn func(ctx context.Context, err error) bool
	// Logger gets a rollback that failed. Defaults to [slog.Default].
	Logger *slog.Logger
}

// NewInterceptor returns an interceptor for handlers that runs each unary call in a transaction of t
// and commits before the answer leaves. NewInterceptor panics when t is nil; [Config.ToInterceptor] has
// options and returns the error.
//
// The context carries the transaction: the outbox's Writer and the adapter's TxFrom find the
// transaction there. The transaction commits when the handler returns no error and does not panic,
// and the call's context has not ended. When the commit fails, the client gets the code of a
// [*CommitError], and no header or trailer that the handler set. A panic goes on, for
// [connect.WithRecover] or net/http.
//
// Streams get no transaction. Calls of a client that has the interceptor are passed on.
//
// Used twice for the same transactor, the interceptor acts once. With two transactors of the same
// pool, the inner transaction is a savepoint of the outer transaction. With two pools, the inner
// transaction commits first.
func NewInterceptor(t outbox.Transactor) connect.Interceptor {
	i, err := Config{Transactor: t}.ToInterceptor()
	if err != nil {
		panic(err)
	}
	return i
}

// ToInterceptor returns the interceptor for a copy of the config. The error joins an
// [outbox.FieldError] for each field that is wrong.
func (config Config) ToInterceptor() (connect.Interceptor, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.ReadOnlyMethods = slices.Clone(config.ReadOnlyMethods)
	if config.Idempotency != nil {
		keys := *config.Idempotency
		config.Idempotency = &keys
	}
	if config.TxOptions != nil {
		options := *config.TxOptions
		config.TxOptions = &options
	}
	if config.RollbackOn == nil {
		config.RollbackOn = func(_ context.Context, err error) bool { return err != nil }
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	return &interceptor{config}, nil
}

func (config *Config) validate() error {
	var problems []error
	if nilness.IsNil(config.Transactor) {
		problems = append(problems, &outbox.FieldError{Field: "Config.Transactor", Problem: "is required; give an adapter, such as sqltx.New's"})
	}
	if config.Idempotency != nil && config.Idempotency.Keys == nil {
		problems = append(problems, &outbox.FieldError{Field: "Config.Idempotency.Keys", Problem: "is required; give what idempotency.New returns"})
	}
	if config.Retries < 0 {
		problems = append(problems, &outbox.FieldError{Field: "Config.Retries", Problem: fmt.Sprintf("is %d; it must be positive, or zero to run each call once", config.Retries)})
	}
	for i, method := range config.ReadOnlyMethods {
		if !strings.HasPrefix(method, "/") || strings.Count(method, "/") != 2 {
			problems = append(problems, &outbox.FieldError{
				Field: fmt.Sprintf("Config.ReadOnlyMethods[%d]", i), Problem: fmt.Sprintf("is %q; procedures are like \"/shop.v1.Orders/List\"", method),
			})
		}
	}
	return errors.Join(problems...)
}

// interceptor is the interceptor of a checked config.
type interceptor struct{ Config }

// WrapUnary runs the calls of a handler in transactions.
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		spec := req.Spec()
		switch {
		case spec.IsClient, i.Skipper != nil && i.Skipper(ctx, req), hasTransactionOf(ctx, i.Transactor):
			return next(ctx, req)
		case slices.Contains(i.ReadOnlyMethods, spec.Procedure):
			return next(without(ctx, spec, "which is one of Config.ReadOnlyMethods; take it out of them, or write in outbox.InTx"), req)
		case spec.IdempotencyLevel == connect.IdempotencyNoSideEffects:
			return next(without(ctx, spec, "whose idempotency_level in the schema is NO_SIDE_EFFECTS; change the level, or write in outbox.InTx"), req)
		default:
			return i.call(ctx, req, next)
		}
	}
}

// WrapStreamingClient leaves the streams of clients alone.
func (*interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler makes a writer say why a stream has no transaction.
func (*interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(without(ctx, conn.Spec(), "which is a stream; write in outbox.InTx, for each message or as the protocol says"), conn)
	}
}

// without is the context of a call that gets no transaction.
func without(ctx context.Context, spec connect.Spec, why string) context.Context {
	return outbox.ContextWithoutTx(ctx, "connecttx begins none for "+spec.Procedure+", "+why)
}
