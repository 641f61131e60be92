package sqlstore_test

import (
	"context"
	"database/sql"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// backAgain is a server of PostgreSQL that is away for the first question, and answers the second one.
type backAgain struct {
	outbox.DB
	asked int
}

type unknownFunction struct{}

func (unknownFunction) Error() string    { return "function sqlite_version() does not exist" }
func (unknownFunction) SQLState() string { return "42883" }

func (b *backAgain) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	if b.asked++; b.asked == 1 {
		return nil, io.ErrUnexpectedEOF
	}
	return nil, unknownFunction{}
}

// Otherwise Outbox.Run would not wait for the server.
func TestAServerThatComesBackWhileItIsAskedIsUnreachable(t *testing.T) {
	t.Parallel()
	_, err := sqlstore.Detect(t.Context(), &backAgain{})
	require.True(t, sqlerr.IsUnreachable(err), "%v", err)
	require.True(t, sqlerr.IsUnreachable(sqlstore.Postgres().Check(t.Context(), &backAgain{}, true)))
}
