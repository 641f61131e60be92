package dashboard_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func (s *site) replays() []outbox.ReplayStatus {
	s.t.Helper()
	list, err := s.outbox.Replays(s.t.Context())
	require.NoError(s.t, err)
	return list
}

func TestAReplayOfDeliveredEventsIsStartedStoppedAndContinued(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	steering := s.get("/shop/steering")
	require.Contains(t, steering, "No delivered events are replayed.")
	form := with(s.form(steering, "Replay …</button>"), "action", "start-replay", "name", "new index", "listener", "search",
		"event_types", "OrderPlaced, OrderPaid", "aggregate_type", "Order", "rate", "50", "since", "2024-01-02T03:04")
	asked := s.send(http.MethodPost, "/shop/confirm", form)
	require.Contains(t, asked.body, "Deliver delivered events of Order / OrderPlaced, Order / OrderPaid again, to the listener search?")
	require.Contains(t, asked.body, "50 in a second at most")
	require.Empty(t, s.replays(), "the question starts nothing")
	s.done(with(s.form(asked.body, "Yes, start-replay"), "reason", "a new index"))
	list := s.replays()
	require.Len(t, list, 1)
	r := list[0].Replay
	require.Equal(t, [2]string{"search", "a new index"}, [2]string{r.Listener, r.Reason})
	require.Equal(t, []outbox.EventType{"OrderPlaced", "OrderPaid"}, r.EventTypes)
	require.Equal(t, 50, r.Rate)
	require.Equal(t, time.Date(2024, 1, 2, 3, 4, 0, 0, time.UTC), r.Since)
	require.NotEmpty(t, r.By)

	steering = s.get("/shop/steering")
	require.Contains(t, steering, `aria-label="Stop the replay new index"`)
	asked = s.send(http.MethodPost, "/shop/confirm", with(s.form(steering, "Stop the replay"), "action", "stop-replay"))
	require.Contains(t, asked.body, "Stop the replay new index?")
	s.done(s.form(asked.body, "Yes, stop-replay"))
	require.Equal(t, outbox.ReplayStopped, s.replays()[0].State)
	asked = s.send(http.MethodPost, "/shop/confirm", with(s.form(s.get("/shop/steering"), "Continue the replay"), "action", "continue-replay"))
	require.Contains(t, s.done(s.form(asked.body, "Yes, continue-replay")), "replay=new index: continued.")
	require.Equal(t, outbox.ReplayRunning, s.replays()[0].State)

	for problem, pairs := range map[string][]string{
		"&#34;listener&#34; is required":              {"listener", ""},
		"&#34;event_types&#34; has 0 event types":     {"event_types", " , "},
		"&#34;rate&#34; is 501":                       {"rate", "501"},
		"&#34;until&#34; is in the future":            {"until", "9998-01-01"},
		"&#34;name&#34; is required":                  {"name", " "},
		"&#34;group&#34; does not belong to this act": {"group", "g"},
	} {
		wrong := with(form)
		wrong.Set(pairs[0], pairs[1])
		refused := s.send(http.MethodPost, "/shop/confirm", wrong)
		require.Equal(t, http.StatusBadRequest, refused.StatusCode, problem)
		require.Contains(t, refused.body, problem)
	}
}

func TestAReplayShowsTheLastErrorOfItsEvents(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	store, err := sqlstore.Detect(t.Context(), s.db)
	require.NoError(t, err)
	long := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	_, err = store.SetReplay(t.Context(), s.db, "", outbox.ReplayRow{
		Name: "r", Version: "1", Value: `{"id":"1","name":"r","rate":1,"state":"running","progress":"` + long + `","last":["waiting","refused-0"]}`,
	}, nil)
	require.NoError(t, err)
	require.Contains(t, s.get("/shop/steering"), `data-label="Failed">1: warehouse refused order 1000: no such item<`)
	require.Contains(t, s.get("/shop/"), `<a href="steering#replays">a replay of delivered events has made no progress for 1 h 0 min</a>`)
}
