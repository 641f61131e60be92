package binlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// The reader is a node of the outbox: the dashboard, the verdict and the doctor read the report.
func TestAReaderReportsItself(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		stop := s.read(nil)
		s.commit("a", "1", "2")
		s.published(2)
		var node outbox.Node
		nodes := func() []outbox.Node {
			list, err := sqlstore.MySQL().Nodes(t.Context(), s.db)
			require.NoError(t, err)
			return list
		}
		relaytest.Eventually(t, "the reader reports that the whole log is published", func() bool {
			list := nodes()
			if len(list) == 1 {
				node = list[0]
			}
			return len(list) == 1 && !node.LastPoll.IsZero() && node.Totals.Delivered == 2
		})
		require.Equal(t, "log", node.Mode)
		require.True(t, node.Live)
		require.Equal(t, &outbox.LogLag{Behind: -1, Kept: -1, Left: -1}, node.Log)
		require.NoError(t, stop())
		require.Empty(t, nodes(), "the report is withdrawn")
	})
}
