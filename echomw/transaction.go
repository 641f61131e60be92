package echomw

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/outbox"
)

// DefaultMaxBuffer is how many bytes of a response's body are held back when
// not told: 1 MiB.
const DefaultMaxBuffer = 1 << 20

// TransactionConfig makes the middleware that [Transaction] is the short form
// of.
type TransactionConfig struct {
	// Skipper says which requests get no transaction. Defaults to none but
	// those of ReadOnlyMethods.
	Skipper func(c echo.Context) bool
	// Transactor begins the transactions: an adapter. Required.
	Transactor outbox.Transactor
	// TxOptions are for each transaction. Nil: the database's defaults.
	TxOptions *sql.TxOptions
	// MaxBuffer is how many bytes of the body are held back until the commit. A
	// response that grows beyond commits first and then streams. Defaults to
	// [DefaultMaxBuffer].
	MaxBuffer int
	// ReadBody is how many bytes of the request's body are read into memory before
	// the transaction begins, so that a client that sends them slowly holds no
	// transaction. The handler reads the rest, or the error of reading, after
	// them. Defaults to none. A client that waits for an answer before it has sent
	// that much waits in vain.
	ReadBody int64
	// ReadOnlyMethods get no transaction. Nil is GET, HEAD and OPTIONS; an empty
	// list that is not nil is none.
	ReadOnlyMethods []string
	// RollbackOn says whether to roll back, for the status that was or will be
	// answered and the error that the handler returned or gave to c.Error, if
	// any. The status of an error that nobody has answered yet is its
	// [echo.HTTPError]'s, or 500. Without a status it is 200. A panic that gets
	// as far as the middleware rolls back without asking; one that a Recover
	// inside of the middleware turned into an error is an error here. Defaults
	// to any error, and to a status of 400 or more.
	RollbackOn func(c echo.Context, status int, err error) bool
}

// Transaction is a middleware that runs each request in a transaction of t and
// holds the response back until it has committed. Requests with GET, HEAD and
// OPTIONS get none. It panics when t is nil; [TransactionConfig.ToMiddleware]
// returns the error, and has options.
//
// The request's context carries the transaction: the outbox's Writer writes in
// it, and the adapter's TxFrom finds it. It commits when the handler returns,
// unless the handler returns an error, panics, answers with a status of 400 or
// more, gives an error to c.Error, or the request's context has ended since. A
// commit that fails is a [*CommitError] for the application's HTTPErrorHandler,
// and nothing of the response that was held back, its headers included, is
// sent.
//
// It commits before the handler returns when the body outgrows MaxBuffer, and
// when the handler calls Flush or Hijack. What is written to the outbox after
// that has no transaction.
//
// Mount it with Use, not with Pre, for Echo's router takes no context but its
// own. Within another one of the same transactor it does nothing. Of two for
// different transactors the inner one commits first.
func Transaction(t outbox.Transactor) echo.MiddlewareFunc {
	mw, err := TransactionConfig{Transactor: t}.ToMiddleware()
	if err != nil {
		panic(err)
	}
	return mw
}

// ToMiddleware makes the middleware from a copy of the config. It reports
// everything that is wrong with it at once, each as an [outbox.FieldError].
func (config TransactionConfig) ToMiddleware() (echo.MiddlewareFunc, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.Skipper == nil {
		config.Skipper = func(echo.Context) bool { return false }
	}
	if config.MaxBuffer == 0 {
		config.MaxBuffer = DefaultMaxBuffer
	}
	if config.ReadOnlyMethods == nil {
		config.ReadOnlyMethods = []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	}
	config.ReadOnlyMethods = slices.Clone(config.ReadOnlyMethods)
	if config.RollbackOn == nil {
		config.RollbackOn = rollbackOnFailure
	}
	if config.TxOptions != nil {
		options := *config.TxOptions
		config.TxOptions = &options
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if slices.Contains(config.ReadOnlyMethods, c.Request().Method) || config.Skipper(c) || inTransactionOf(c, config.Transactor) {
				return next(c)
			}
			return serve(&config, c, next)
		}
	}, nil
}

func rollbackOnFailure(_ echo.Context, status int, err error) bool {
	return err != nil || status >= http.StatusBadRequest
}

func (config *TransactionConfig) validate() error {
	var problems []error
	add := func(field, problem string) {
		problems = append(problems, &outbox.FieldError{Field: "TransactionConfig." + field, Problem: problem})
	}
	switch v := reflect.ValueOf(config.Transactor); {
	case !v.IsValid():
		add("Transactor", "is required; give an adapter, such as sqltx.New's")
	case v.Kind() == reflect.Pointer && v.IsNil():
		add("Transactor", fmt.Sprintf("is a nil %T", config.Transactor))
	case !v.Comparable():
		add("Transactor", fmt.Sprintf("is a %T, which cannot be compared; give a pointer", config.Transactor))
	}
	if config.MaxBuffer < 0 {
		add("MaxBuffer", fmt.Sprintf("is %d; it must be positive, or zero for %d", config.MaxBuffer, DefaultMaxBuffer))
	}
	if config.ReadBody < 0 {
		add("ReadBody", fmt.Sprintf("is %d; it must be positive, or zero to leave the body to the handler", config.ReadBody))
	}
	for i, method := range config.ReadOnlyMethods {
		if method == "" || method != strings.ToUpper(method) {
			add(fmt.Sprintf("ReadOnlyMethods[%d]", i), fmt.Sprintf("is %q; methods are in upper case", method))
		}
	}
	return errors.Join(problems...)
}
