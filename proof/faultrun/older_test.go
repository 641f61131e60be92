package faultrun_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/faultrun"
)

func TestAnOlderProgramNeedsACommit(t *testing.T) {
	t.Parallel()
	_, err := faultrun.BuildOlder(t.Context(), "no-such-revision", t.TempDir())
	require.ErrorContains(t, err, `the repository has no commit "no-such-revision"`)
}
