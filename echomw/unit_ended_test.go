package echomw_test

import (
	"database/sql"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/outbox"
)

// Whether a transaction that the handler ended committed, the middleware does
// not know, and the answer must not say that it did not.
func TestATransactionThatTheHandlerEndedHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(outside(recovery()))
	answer := a.HTTPErrorHandler
	var seen error
	a.HTTPErrorHandler = func(err error, c echo.Context) { seen = err; answer(err, c) }
	a.POST("/:end", a.writing(func(c echo.Context) error {
		tx, _ := a.transactor.(*sqltx.Adapter).TxFrom(c.Request().Context())
		end := tx.Commit
		if c.Param("end") == "rollback" {
			end = tx.Rollback
		}
		if err := end(); err != nil {
			return err
		}
		return c.NoContent(http.StatusCreated)
	}))
	for end, outcomes := range map[string][]string{"commit": {"commit"}, "rollback": {"rollback"}} {
		before := len(a.record.Outcomes())
		a.wantAnswer(a.post("/"+end), 500, `{"error":"unknown"}`)
		require.Equal(t, outcomes, a.record.Outcomes()[before:])
		var commit *echomw.CommitError
		require.ErrorAs(t, seen, &commit)
		require.ErrorIs(t, seen, outbox.ErrOutcomeUnknown)
		require.ErrorIs(t, seen, sql.ErrTxDone)
		require.ErrorContains(t, seen, "leave Commit and Rollback to the middleware")
	}
}
