package main_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReplaysOfDeliveredEventsAreStartedListedAndStopped(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		start := []string{"replay", "start", "new index", "--listener", "search", "--event-type", "OrderPlaced", "--event-type", "OrderPaid", "--aggregate-type", "Order", "--since", "24h", "--rate", "50", "--reason", "a new index"}
		require.Empty(t, answer(t, s.DSN, "replay", "list")["replays"])
		require.Contains(t, ok(t, s.DSN, append(start, "--dry-run")...), "would start replay new index")
		require.Contains(t, fails(t, 2, s.DSN, start...), "--yes is needed to replay delivered events of Order/OrderPlaced, OrderPaid to the listener search")
		require.Empty(t, answer(t, s.DSN, "replay", "list")["replays"], "neither started a replay")
		require.Equal(t, map[string]any{"name": "new index", "changed": true}, answer(t, s.DSN, append(start, "--yes")...))
		require.Contains(t, fails(t, 1, s.DSN, append(start, "--yes")...), "a replay of this name exists")

		list := answer(t, s.DSN, "replay", "list")["replays"].([]any)
		require.Len(t, list, 1)
		r := list[0].(map[string]any)
		require.Equal(t, []any{"running", "search", "Order", []any{"OrderPlaced", "OrderPaid"}, 50.0, "a new index", 0.0, 0.0},
			[]any{r["state"], r["listener"], r["aggregate_type"], r["event_types"], r["rate"], r["reason"], r["added"], r["waiting"]})
		require.Contains(t, ok(t, s.DSN, "replay", "list"), "Order/OrderPlaced, OrderPaid")

		require.Contains(t, ok(t, s.DSN, "replay", "stop", "new index", "--dry-run"), "would stop replay new index")
		require.Equal(t, true, answer(t, s.DSN, "replay", "stop", "new index")["changed"])
		require.Equal(t, false, answer(t, s.DSN, "replay", "stop", "new index")["changed"])
		require.Contains(t, ok(t, s.DSN, "replay", "list"), "stopped")
		require.Contains(t, ok(t, s.DSN, "replay", "continue", "new index"), "continued replay new index")
		require.Contains(t, ok(t, s.DSN, "replay", "list"), "running")
		require.Contains(t, fails(t, 3, s.DSN, "replay", "stop", "other"), "no replay of this name")

		entries := answer(t, s.DSN, "audit")["entries"].([]any)
		var actions []string
		for _, e := range entries {
			actions = append(actions, fmt.Sprint(e.(map[string]any)["action"]))
		}
		require.Equal(t, []string{"continue-replay", "stop-replay", "start-replay"}, actions)

		for problem, args := range map[string][]string{
			"--listener is required":   {"replay", "start", "r", "--event-type", "T"},
			"--event-type has 0":       {"replay", "start", "r", "--listener", "search"},
			"--rate is 501":            {"replay", "start", "r", "--listener", "search", "--event-type", "T", "--rate", "501"},
			"--until is in the future": {"replay", "start", "r", "--listener", "search", "--event-type", "T", "--until", "9999-01-01T00:00:00Z"},
			"NAME is required":         {"replay", "start", "", "--listener", "search", "--event-type", "T"},
			"takes one name":           {"replay", "start"},
		} {
			require.Contains(t, fails(t, 2, s.DSN, args...), problem)
		}
	})
}
