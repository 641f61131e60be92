package dashboard_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestTheAuditLogIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	require.Contains(t, s.get("/shop/audit"), "The audit log is empty.")
	_, _ = s.act(with(s.form(s.get("/shop/dead"), "warehouse refused order"), "action", "replay"))
	page := s.get("/shop/audit")
	require.Regexp(t, `>ada</td><td [^>]+>192\.0\.2\.1</td><td [^>]+>replay</td><td [^>]+><span><a [^>]+>group=[^<]+</a></span></td><td [^>]+>3</td><td [^>]+>Order/OrderPlaced: warehouse refused order #: no such item</td><td [^>]+>done</td>`, page)
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

// The log keeps the end of a pause, and leads to what was changed.
func TestTheAuditLogHasTheEndOfAPauseAndLinks(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	asked := s.send(http.MethodPost, "/shop/confirm", with(s.form(s.get("/shop/event?id=waiting"), "Pause this kind"), "action", "pause"))
	s.done(with(s.form(asked.body, "Yes, pause"), "for", "90m"))
	list, err := s.outbox.Paused(t.Context())
	require.NoError(t, err)
	selected := with(s.form(s.get("/shop/letters"), "Replay selected"), "id", "refused-0", "id", "unmailed-0")
	s.act(with(selected, "action", "replay"))
	s.act(with(s.form(s.get("/shop/dead"), "mail server"), "action", "delete"))
	s.act(with(s.form(s.get("/shop/audit"), "Undo …"), "action", "restore"))
	page := s.get("/shop/audit")
	require.Contains(t, page, `<a href="events?aggregate_type=Order&amp;event_type=OrderPlaced">Order / OrderPlaced</a> until=`+list[0].Until.UTC().Format(time.RFC3339)+`</span></td>`)
	require.Contains(t, page, `event_id=<a href="event?id=refused-0">refused-0</a>, <a href="event?id=unmailed-0">unmailed-0</a></span></td>`)
	require.Regexp(t, `<a href="letters\?group=[a-z0-9]+">group=`, page)
	require.Regexp(t, `<a href="events\?deletion=[A-Z0-9]{26}">deletion=`, page)
	many := targets(t, "event_id=a,b,c,d,e,f,g and 3 more")
	require.Contains(t, many, `<a href="event?id=e">e</a> and 2 others and 3 more`)
	require.Equal(t, "all", targets(t, "all"))
}

func targets(t *testing.T, target string) string {
	t.Helper()
	return dashboard.Target(outbox.AuditEntry{Action: "replay", Target: target})
}

func TestAChangeThatIsNotRecordedIsShownAsDone(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	_, err := s.db.ExecContext(t.Context(), `CREATE TRIGGER full BEFORE INSERT ON outbox_event_control WHEN NEW.kind = 'audit' BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`)
	require.NoError(t, err)
	_, page := s.act(with(s.form(s.get("/shop/dead"), "warehouse refused order"), "action", "replay"))
	require.Contains(t, page, "Replayed 3 dead letters: they are due now")
	require.Contains(t, page, "it is not recorded in the audit log. Do not repeat it.")
	require.NotContains(t, page, "failed")
	require.NotContains(t, page, "the disk is full")
	require.Contains(t, s.log.String(), "the disk is full")
}
