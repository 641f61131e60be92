package patience_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/patience"
)

func TestTheLimitFollowsTheLastStatement(t *testing.T) {
	t.Parallel()
	var p patience.Patience
	require.Equal(t, patience.Shortest, p.Now())
	require.Zero(t, p.Last())
	for _, tc := range []struct{ took, limit time.Duration }{
		{time.Millisecond, patience.Shortest},
		{time.Second, 4 * time.Second},
		{20 * time.Second, patience.Longest},
		{time.Millisecond, patience.Shortest},
	} {
		p.Took(tc.took, nil)
		require.Equal(t, tc.limit, p.Now())
		require.Equal(t, tc.took, p.Last())
	}
}

func TestTheLimitGrowsWhenAllStatementsAreSlow(t *testing.T) {
	t.Parallel()
	var p patience.Patience
	timeout := func() { p.Took(p.Now(), context.DeadlineExceeded) }
	timeout()
	timeout()
	require.Equal(t, patience.Shortest, p.Now(), "one silent connection is dropped soon")
	p.Took(time.Millisecond, errors.New("refused"))
	timeout()
	timeout()
	require.Equal(t, patience.Shortest, p.Now(), "another failure was fast, so the database is not slow")
	timeout()
	require.Equal(t, 2*patience.Shortest, p.Now())
	for range 100 {
		timeout()
	}
	require.Equal(t, patience.Longest, p.Now())
	p.Took(time.Millisecond, nil)
	require.Equal(t, patience.Shortest, p.Now())
}

func TestAStatementEndsAtTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p patience.Patience
		began := time.Now()
		for range 3 {
			err := p.Statement(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Equal(t, 3*patience.Shortest, time.Since(began))
		require.Equal(t, 2*patience.Shortest, p.Now())
	})
}
