package echomw_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestOnCommitRunsAfterTheCommitAlone(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(outside(recovery()))
	var calls []string
	var kept context.Context
	a.POST("/:fate", a.writing(func(c echo.Context) error {
		for _, name := range []string{"first", "panicking", "last"} {
			err := echomw.OnCommit(c, func(ctx context.Context) {
				kept = ctx //nolint:fatcontext // what the test is about.
				_, err := a.writer.Write(ctx, adaptertest.Event())
				calls = append(calls, fmt.Sprint(name, " ", adaptertest.Written(t, a.db), " ", ctx.Err(), " ", err != nil))
				if name == "panicking" {
					panic("boom")
				}
			})
			if err != nil {
				return err
			}
		}
		switch c.Param("fate") {
		case "error":
			return errTest
		case "panic":
			panic("boom")
		case "conflict":
			return c.NoContent(http.StatusConflict)
		}
		return c.String(http.StatusOK, "ok")
	}))
	for _, fate := range []string{"error", "panic", "conflict"} {
		require.GreaterOrEqual(t, a.post("/"+fate).StatusCode, 400)
	}
	require.Empty(t, calls)
	a.wantAnswer(a.post("/good"), 200, "ok")
	a.server.Close()
	require.NoError(t, kept.Err(), "it may outlive the request")
	// The row is there, the context is alive, and carries no transaction.
	require.Equal(t, []string{"first 1 <nil> true", "panicking 1 <nil> true", "last 1 <nil> true"}, calls)
}

func TestOnCommitNeedsATransaction(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	var nothing, without error
	a.POST("/", func(c echo.Context) error {
		nothing = echomw.OnCommit(c, nil)
		without = echomw.OnCommit(c, func(context.Context) {})
		return nil
	})
	a.post("/")
	var field *outbox.FieldError
	require.ErrorAs(t, nothing, &field)
	require.ErrorIs(t, without, outbox.ErrNoTransaction)
	require.ErrorContains(t, without, "mount the Transaction middleware")
}
