package echomw_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestAdminListsEventsNodesAndGroups(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		a, _ := newGraveyard(t, db, []outbox.Envelope{lost("1", "Placed"), lost("2", "Shipped"), lost("3", "Placed")})
		events := func(query string) (ids []string, next string) {
			tree := a.tree(a.send("GET", "/admin/events"+query), 200)
			for _, event := range tree["events"].([]any) {
				require.NotContains(t, event, "payload")
				require.NotContains(t, event, "headers")
				ids = append(ids, event.(map[string]any)["event_id"].(string))
			}
			next, _ = tree["next"].(string)
			return ids, next
		}
		ids, next := events("?status=DEAD&limit=2")
		require.Equal(t, []string{"3", "2"}, ids, "the latest first")
		ids, _ = events("?status=DEAD&limit=2&after=" + url.QueryEscape(next))
		require.Equal(t, []string{"1"}, ids)
		ids, _ = events("?status=NEW,RETRY")
		require.Empty(t, ids)
		ids, _ = events("?aggregate_id=o-2&tenant_id=acme&event_type=Shipped&aggregate_type=Order")
		require.Equal(t, []string{"2"}, ids)
		ids, _ = events("?id_prefix=2&error_text=CARRIER+is")
		require.Equal(t, []string{"2"}, ids)
		for _, query := range []string{"?id_prefix=%25", "?error_text=carrier_is", "?status=WAITING", "?status=DUE", "?status=DELAYED", "?status=LEASED"} {
			ids, _ = events(query)
			require.Empty(t, ids, query)
		}
		require.Equal(t, 3.0, a.tree(a.send("GET", "/admin/events?tenant_id=none"), 200)["looked_at"])

		one := a.tree(a.send("GET", "/admin/events/2"), 200)
		for name, value := range map[string]any{
			"event_id": "2", "status": "DEAD", "event_type": "Shipped", "attempts": 1.0, "last_error": "the carrier is closed",
			"payload": map[string]any{"secret": "of 2"}, "headers": map[string]any{"source": "api"},
		} {
			require.Equal(t, value, one[name], name)
		}
		a.tree(a.send("GET", "/admin/events/none"), 404)
		lostKind := outbox.EventKind{AggregateType: "Order", EventType: "Lost"}
		for _, n := range []outbox.Node{{Owner: "api", Kinds: []outbox.EventKind{}, Unheard: []outbox.EventKind{lostKind}}, {Owner: "old", Log: &outbox.LogLag{Behind: 1, Kept: 2, Left: -1}}} {
			require.NoError(t, stores[db.Kind]().Announce(t.Context(), db.DB, n, time.Hour))
		}
		nodes := map[string]map[string]any{}
		for _, n := range a.tree(a.send("GET", "/admin/nodes"), 200)["nodes"].([]any) {
			node := n.(map[string]any)
			nodes[node["owner"].(string)] = node
		}
		require.Equal(t, []any{}, nodes["api"]["kinds"], "the node has no listener")
		require.Equal(t, []any{map[string]any{"event_type": "Lost", "aggregate_type": "Order"}}, nodes["api"]["unheard"])
		require.NotContains(t, nodes["old"], "kinds", "not known")
		require.Equal(t, map[string]any{"behind_bytes": 1.0, "kept_bytes": 2.0, "left_bytes": -1.0}, nodes["old"]["log"])
		require.NotContains(t, nodes["api"], "log")

		groups := a.tree(a.send("GET", "/admin/dead-letters/groups"), 200)["groups"].([]any)
		require.Len(t, groups, 2)
		largest := groups[0].(map[string]any)
		require.Equal(t, "Placed", largest["event_type"])
		require.Equal(t, 2.0, largest["count"])
		require.Equal(t, []string{"1", "3"}, a.ids("?group="+largest["group"].(string)))
		deleted := a.tree(a.send("DELETE", "/admin/dead-letters?group="+largest["group"].(string)), 200)
		require.Equal(t, 2.0, deleted["deleted"])
		require.Len(t, deleted["deletion_id"], 26)
		require.Equal(t, []string{"2"}, a.ids(""))
		require.Equal(t, []string{"2"}, a.ids("?aggregate_id=o-2&tenant_id=acme"))
		require.Empty(t, a.ids("?tenant_id=globex"))
	})
}

func TestAnEventsPayloadNeedsItsRole(t *testing.T) {
	t.Parallel()
	a, _ := newGraveyard(t, testdb.Open(t, sqliteTarget()), []outbox.Envelope{lost("1", "Placed")}, echomw.Operate)
	require.NotContains(t, a.send("GET", "/admin/events/1").body, "secret")
	require.NotContains(t, a.send("GET", "/admin/events/1").body, "api")
	a, _ = newGraveyard(t, testdb.Open(t, sqliteTarget()), []outbox.Envelope{lost("1", "Placed")}, echomw.ReadPayloads)
	require.Contains(t, a.send("GET", "/admin/events/1").body, "secret")
}
