package outboxfx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
)

// silent is a database that never answers.
type silent struct{}

func (silent) Connect(ctx context.Context) (driver.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) Driver() driver.Driver { return nil }

func TestADatabaseThatNeverAnswersIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(silent{})
		defer func() { require.NoError(t, db.Close()) }()
		begun := time.Now()
		err := newError(fx.Supply(db), outboxfx.Module)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "outboxfx: choosing the store of the outbox")
		require.Equal(t, outboxfx.DetectTimeout, time.Since(begun))
	})
}
