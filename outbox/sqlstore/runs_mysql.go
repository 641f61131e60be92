package sqlstore

import (
	"context"
	"errors"

	"github.com/outboxkit/outbox-go/outbox"
)

func (s *Store) walkLoosely(context.Context, outbox.DB, outbox.RunQuery) ([]keyRows, bool, error) {
	return nil, false, errors.ErrUnsupported
}
