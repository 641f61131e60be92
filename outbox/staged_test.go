package outbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// A batch that is sent twice in one transaction: the second time is refused, and the
// event can be written again after the rollback.
func TestStagedWriteIsSentOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, outbox.Config{}, handled)
		w, err := e.Writer().Stage(t.Context(), []outbox.Envelope{said("e")})
		require.NoError(t, err)
		scope := outboxtest.NewScope(e.store.DB())
		require.NoError(t, w.Send(t.Context(), scope))
		require.NoError(t, w.Inserted(t.Context(), scope, 1))
		require.ErrorContains(t, w.Send(t.Context(), scope), "event e was sent already")
		require.NoError(t, scope.Rollback(nil))
		synctest.Wait()

		e.write(said("e"))
		time.Sleep(time.Second)
		row, _ := e.store.Row("e")
		require.Equal(t, outbox.StatusDone, row.Status)
		require.NoError(t, e.Close(context.Background()))
	})
}
