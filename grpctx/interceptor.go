package grpctx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox"
)

// Config configures the interceptor. [UnaryServerInterceptor] is the short form of
// [Config.ToInterceptor].
type Config struct {
	// Skipper selects the calls that get no transaction. By default only calls of the
	// ReadOnlyMethods get no transaction.
	Skipper func(ctx context.Context, info *grpc.UnaryServerInfo) bool
	// Transactor begins the transactions: an adapter. Required.
	Transactor outbox.Transactor
	// TxOptions are the options of each transaction. Nil: the database's defaults.
	TxOptions *sql.TxOptions
	// ReadOnlyMethods are full names, such as "/shop.Orders/List", of methods that get no
	// transaction. Defaults to an empty list.
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
	// Extract puts the trace context of the call's metadata onto the context, so
	// that the events written carry it:
	//
	//	func(ctx context.Context, md grpctx.Carrier) context.Context {
	//		return otel.GetTextMapPropagator().Extract(ctx, md)
	//	}
	//
	// By default nothing is extracted: otelgrpc's stats handler has already done it.
	Extract func(ctx context.Context, md Carrier) context.Context
	// Logger gets a rollback that failed. Defaults to [slog.Default].
	Logger *slog.Logger
}

// UnaryServerInterceptor returns an interceptor that runs each unary call in a transaction of t and
// commits before the status leaves. UnaryServerInterceptor panics when t is nil;
// [Config.ToInterceptor] has options and returns the error.
//
// The context carries the transaction: the outbox's Writer and the adapter's TxFrom find the
// transaction there. The transaction commits when the handler returns no error and does not panic,
// and the call's context has not ended. When the commit fails, the client gets the status of a
// [*CommitError]. A panic goes on, for a recovery interceptor outside. Headers and trailers that
// the handler sets leave after the commit. If the commit fails, they are not sent.
//
// Used twice for the same transactor, the interceptor acts once. With two transactors of the same
// pool, the inner transaction is a savepoint of the outer transaction. With two pools, the inner
// transaction commits first.
func UnaryServerInterceptor(t outbox.Transactor) grpc.UnaryServerInterceptor {
	interceptor, err := Config{Transactor: t}.ToInterceptor()
	if err != nil {
		panic(err)
	}
	return interceptor
}

// ToInterceptor returns the interceptor for a copy of the config. The error joins an
// [outbox.FieldError] for each field that is wrong.
func (config Config) ToInterceptor() (grpc.UnaryServerInterceptor, error) {
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
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if config.Extract != nil {
			ctx = config.Extract(ctx, carrierOf(ctx))
		}
		switch {
		case config.Skipper != nil && config.Skipper(ctx, info), hasTransactionOf(ctx, config.Transactor):
			return handler(ctx, request)
		case slices.Contains(config.ReadOnlyMethods, info.FullMethod):
			return handler(outbox.ContextWithoutTx(ctx, "grpctx begins none for "+info.FullMethod+
				", which is one of Config.ReadOnlyMethods; take it out of them, or write in outbox.InTx"), request)
		default:
			return config.call(ctx, info.FullMethod, request, handler)
		}
	}, nil
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
				Field: fmt.Sprintf("Config.ReadOnlyMethods[%d]", i), Problem: fmt.Sprintf("is %q; full names are like \"/shop.Orders/List\"", method),
			})
		}
	}
	return errors.Join(problems...)
}
