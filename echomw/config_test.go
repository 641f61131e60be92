package echomw_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestRollbackOnDecides(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	a := newApp(t).configured(echomw.TransactionConfig{RollbackOn: func(c echo.Context, status int, err error) bool {
		asked.Store(fmt.Sprint(c.Path(), " ", status, " ", err))
		return status >= 500 || c.QueryParam("dry") != ""
	}})
	a.POST("/ok", a.writing(func(c echo.Context) error { return c.String(http.StatusOK, "ok") }))
	a.POST("/denied", a.writing(func(c echo.Context) error { return c.String(http.StatusUnauthorized, "denied") }))
	a.POST("/deniederr", a.writing(func(echo.Context) error { return echo.NewHTTPError(http.StatusUnauthorized, "denied") }))
	a.POST("/err", a.writing(func(echo.Context) error { return errTest }))
	a.POST("/nothing", a.writing(func(echo.Context) error { return nil }))
	for _, tc := range []struct {
		path, asked, outcome string
		status               int
	}{
		{"/ok", "/ok 200 <nil>", "commit", 200},
		{"/ok?dry=1", "/ok 200 <nil>", "rollback", 200},
		{"/denied", "/denied 401 <nil>", "commit", 401},
		{"/deniederr", "/deniederr 401 code=401, message=denied", "commit", 401},
		{"/err", "/err 500 " + errTest.Error(), "rollback", 500},
		{"/nothing", "/nothing 200 <nil>", "commit", 200},
	} {
		require.Equal(t, tc.status, a.post(tc.path).StatusCode, tc.path)
		require.Equal(t, tc.asked, asked.Load())
		outcomes := a.record.Outcomes()
		require.Equal(t, tc.outcome, outcomes[len(outcomes)-1], tc.path)
	}
}

// brokenTransactor cannot begin, or begins what does not look at contexts.
type brokenTransactor struct {
	err     error
	options *sql.TxOptions
	ended   []string
}

func (b *brokenTransactor) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	b.options = opts
	return ctx, b, b.err
}
func (b *brokenTransactor) Commit() error   { b.ended = append(b.ended, "commit"); return nil }
func (b *brokenTransactor) Rollback() error { b.ended = append(b.ended, "rollback"); return errTest }

func TestATransactionThatCannotBeginIsAnError(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	a.transactor = &brokenTransactor{err: errTest}
	var seen error
	a.HTTPErrorHandler = func(err error, c echo.Context) { seen = err; _ = c.NoContent(http.StatusServiceUnavailable) }
	a.transaction(nil)
	a.POST("/", func(echo.Context) error { panic("it must not run") })
	require.Equal(t, 503, a.post("/").StatusCode)
	require.ErrorIs(t, seen, errTest)
	require.ErrorContains(t, seen, "httptx: beginning the request's transaction")
}

func TestATransactorThatMindsNoContextIsRolledBackForAClientThatIsGone(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	transactor := &brokenTransactor{}
	a.transactor = transactor
	cause := errors.New("gone")
	var seen error
	a.HTTPErrorHandler = func(err error, _ echo.Context) { seen = err }
	a.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			ctx, cancel := context.WithCancelCause(c.Request().Context())
			c.SetRequest(c.Request().WithContext(ctx))
			c.Set("cancel", cancel)
			return next(c)
		}
	})
	a.configured(echomw.TransactionConfig{TxOptions: &sql.TxOptions{Isolation: sql.LevelSerializable}})
	a.POST("/", func(c echo.Context) error {
		c.Get("cancel").(context.CancelCauseFunc)(cause)
		return c.NoContent(http.StatusCreated)
	})
	a.post("/")
	var commit *echomw.CommitError
	require.ErrorAs(t, seen, &commit)
	require.ErrorIs(t, seen, cause)
	require.Equal(t, []string{"rollback"}, transactor.ended)
	require.Equal(t, sql.LevelSerializable, transactor.options.Isolation)
}

func TestTheConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := echomw.TransactionConfig{MaxBuffer: -1, ReadBody: -2, ReadOnlyMethods: []string{"GET", "head", ""}}.ToMiddleware()
	for _, text := range []string{
		"TransactionConfig.Transactor is required", "TransactionConfig.MaxBuffer is -1", "TransactionConfig.ReadBody is -2",
		`TransactionConfig.ReadOnlyMethods[1] is "head"`, `TransactionConfig.ReadOnlyMethods[2] is ""`,
	} {
		require.ErrorContains(t, err, text)
	}
	_, err = echomw.TransactionConfig{Transactor: (*sqltx.Adapter)(nil)}.ToMiddleware()
	require.ErrorContains(t, err, "TransactionConfig.Transactor is required")
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Panics(t, func() { echomw.Transaction(nil) })
}
