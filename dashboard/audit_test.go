package dashboard_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestTheAuditLogIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	require.Contains(t, s.get("/shop/audit"), "The audit log is empty.")
	_, _ = s.act(with(s.form(s.get("/shop/dead"), "warehouse refused order"), "action", "replay"))
	page := s.get("/shop/audit")
	require.Regexp(t, `>ada</td><td [^>]+>192\.0\.2\.1</td><td [^>]+>replay</td><td [^>]+>group=[^<]+</td><td [^>]+>3</td><td [^>]+>–</td><td [^>]+>done</td>`, page)
	require.Contains(t, page, `<a href="audit" aria-current="page">Audit log</a>`)
	require.Contains(t, s.get("/shop/audit?after=x", http.StatusBadRequest), "is unknown")
	ctx := outbox.WithOperator(t.Context(), outbox.Operator{Name: "<b>"})
	for range 101 {
		require.NoError(t, s.outbox.Resume(ctx, orderPlaced))
	}
	page = s.get("/shop/audit")
	require.Contains(t, page, "&lt;b&gt;")
	require.NotContains(t, page, ">replay</td>")
	require.Contains(t, page, "These are the latest 100 changes.")
}

func TestAChangeThatIsNotRecordedIsShownAsDone(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	_, err := s.db.ExecContext(t.Context(), `CREATE TRIGGER full BEFORE INSERT ON outbox_event_control WHEN NEW.kind = 'audit' BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`)
	require.NoError(t, err)
	_, page := s.act(with(s.form(s.get("/shop/dead"), "warehouse refused order"), "action", "replay"))
	require.Contains(t, page, "replay done: 3 events")
	require.Contains(t, page, "it is not recorded in the audit log. Do not repeat it.")
	require.NotContains(t, page, "failed")
	require.NotContains(t, page, "the disk is full")
	require.Contains(t, s.log.String(), "the disk is full")
}
