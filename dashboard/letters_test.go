package dashboard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestAnOlderTableIsExplained(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{
		"DROP TABLE " + dashtest.Table + "_control",
		"ALTER TABLE " + dashtest.Table + " RENAME COLUMN last_error TO other",
	} {
		s := newSite(t, nil)
		_, err := s.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
		path := "/shop/steering"
		if statement[:5] == "ALTER" {
			path = "/shop/event?id=x"
		}
		require.Contains(t, s.get(path, 503), "outbox schema migrate", statement)
	}
}

func TestAReportThatCannotBeReadIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	_, err := s.db.ExecContext(t.Context(), "INSERT INTO "+dashtest.Table+"_control (kind, name, value) VALUES ('node', 'web-1', '{')")
	require.NoError(t, err)
	require.Contains(t, s.get("/shop/"), "delete the row")
}

// countlessStore refuses counts that have no bound.
type countlessStore struct{ *outboxtest.Store }

func (s countlessStore) CountDead(_ context.Context, _ outbox.DB, f outbox.DeadFilter) (int64, error) {
	if f.EventIDs == nil {
		panic("all dead letters are counted")
	}
	return int64(len(f.EventIDs)), nil
}

func (s countlessStore) FindEvents(context.Context, outbox.DB, outbox.EventQuery) (outbox.Page[outbox.EventRow], error) {
	return outbox.Page[outbox.EventRow]{Rows: make([]outbox.EventRow, 2), Next: "there is always more", Looked: 2}, nil
}

func TestAConfirmationCountsNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	s := memorySite(t, countlessStore{outboxtest.NewStore()}, func(*dashboard.Config) {})
	token := s.form(s.get("/shop/steering"), "Pause …</button>")
	asked := s.send("POST", "/shop/confirm", with(token, "action", "delete", "scope", "all", "tenant_id", "globex"))
	require.Contains(t, asked.body, "<strong>40 or more</strong>", "two on each of twenty pages")
	require.Contains(t, asked.body, "Counted among 40 dead letters.")
	asked = s.send("POST", "/shop/confirm", with(token, "action", "delete", "scope", "all"))
	require.Equal(t, 200, asked.StatusCode, "what is dead in all is in the stats")
	asked = s.send("POST", "/shop/confirm", with(token, "action", "delete", "scope", "selection", "id", "x"))
	require.Contains(t, asked.body, "<strong>1</strong>")
}

func TestAFilteredConfirmationCountsAcrossPages(t *testing.T) {
	t.Parallel()
	rows := []dashtest.Row{}
	for i := range outbox.MaxFindLimit + 20 {
		rows = append(rows, dashtest.Row{ID: "x" + time.Duration(i).String(), Type: "T", Tenant: []string{"a", "b"}[i%2], Created: time.Now(), Ended: time.Now(), Status: outbox.StatusDead, Error: "x"})
	}
	s := newSite(t, rows)
	form := with(s.form(s.get("/shop/letters?event_type=+T"), "Delete all"), "action", "delete")
	confirmation, _ := s.act(form)
	require.Contains(t, confirmation, "<strong>520</strong>")
	require.Zero(t, s.dead())
}

func TestListsNameTheListenersOfRows(t *testing.T) {
	t.Parallel()
	retried := listenerRow("z", outbox.StatusRetry)
	retried.Type = "Paid"
	s := newSite(t, []dashtest.Row{listenerRow("x", outbox.StatusDead), retried, {ID: "y", Type: "Placed", Aggregate: "Order", Created: time.Now(), Ended: time.Now(), Status: outbox.StatusDone}})
	for _, path := range []string{"/shop/dead", "/shop/letters", "/shop/letters?event_type=Placed", "/shop/events", "/shop/events?status=DEAD"} {
		require.Equal(t, 1, strings.Count(s.get(path), "Order / Placed → mail</td>"), path)
	}
	require.Equal(t, 1, strings.Count(s.get("/shop/events?status=WAITING"), "Order / Paid → mail"))
}

// listenerRow is the row of the listener "mail" of the event y.
func listenerRow(id string, status outbox.Status) dashtest.Row {
	return dashtest.Row{
		ID: id, Type: "Placed", Aggregate: "Order", Created: time.Now(), Ended: time.Now(), Status: status, Error: "x",
		Headers: map[string]string{outbox.HeaderListener: "mail", outbox.HeaderEventID: "y"},
	}
}

func TestAReplayedEventIsNotCalledDelayed(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	_, err := s.outbox.DeadLetters().ReplayAll(t.Context(), outbox.DeadFilter{}, 0)
	require.NoError(t, err)
	body := s.get("/shop/event?id=refused-0")
	require.Contains(t, body, "(delayed, deferred or replayed)")
	require.NotContains(t, body, "delayed by")
}
