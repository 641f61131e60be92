package cdc_test

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
	s := newShop(t)
	stop := s.read(nil)
	s.commit("a", "1", "2")
	s.published(2)
	var node outbox.Node
	nodes := func() []outbox.Node {
		list, err := s.store.Nodes(t.Context(), s.db)
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
	require.Equal(t, "cdc cdc", node.Owner)
	require.Equal(t, "log", node.Mode)
	require.True(t, node.Live)
	require.NotNil(t, node.Log)
	require.GreaterOrEqual(t, node.Log.Kept, node.Log.Behind)
	require.EqualValues(t, -1, node.Log.Left, "max_slot_wal_keep_size sets no bound")
	require.NoError(t, stop())
	require.Empty(t, nodes(), "the report is withdrawn")
}

// A role that may not write to the control table reads the log all the same.
func TestAReaderThatMayNotReportItselfPublishes(t *testing.T) {
	t.Parallel()
	s := bareShop(t, sqlstore.Postgres(sqlstore.WithAgeIndex()))
	s.createTable()
	require.NoError(t, s.reader(nil).Setup(t.Context()))
	s.exec("ALTER TABLE outbox_event_control RENAME TO elsewhere")
	s.read(nil)
	s.commit("a", "1", "2")
	s.published(2)
}
