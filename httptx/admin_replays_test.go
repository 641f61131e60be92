package httptx_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestAReplayOfDeliveredEventsIsStartedAndStoppedByTheAdmin(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	var log bytes.Buffer
	admin := httptx.Admin(ob, httptx.Access{Authorize: operator, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	post := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
		return w
	}
	require.Contains(t, get(t, admin, "/replays").Body.String(), `{"replays":[]}`)
	const good = "/replays/start?name=r&listener=search&event_types=OrderPlaced,OrderPaid&aggregate_type=Order&tenant_id=secret&rate=50"
	for path, problem := range map[string]string{
		"/replays/start?name=r&event_types=T":                           `"parameter":"listener"`,
		"/replays/start?name=r&listener=l":                              `"parameter":"event_types"`,
		"/replays/start?name=r&listener=l&event_types=T&rate=0":         `"parameter":"rate"`,
		"/replays/start?name=r&listener=l&event_types=T&of=1":           `is unknown`,
		"/replays/start?name=r&listener=l&event_types=T,,U":             `"parameter":"event_types"`,
		"/replays/start?listener=l&event_types=T":                       `"parameter":"name"`,
		good + "&since=2020-01-02T00:00:00Z&until=2020-01-01T00:00:00Z": `"parameter":"until"`,
	} {
		refused := post(path)
		require.Equal(t, http.StatusBadRequest, refused.Code, path)
		require.Contains(t, refused.Body.String(), problem, path)
	}
	require.Equal(t, http.StatusNoContent, post(good).Code)
	require.Equal(t, http.StatusBadRequest, post(good).Code, "the name is taken")
	list := get(t, admin, "/replays").Body.String()
	require.Contains(t, list, `"name":"r","state":"running","listener":"search","aggregate_type":"Order","event_types":["OrderPlaced","OrderPaid"]`)
	require.Equal(t, http.StatusNoContent, post("/replays/stop?name=r").Code)
	require.Contains(t, get(t, admin, "/replays").Body.String(), `"state":"stopped"`)
	require.Equal(t, http.StatusNoContent, post("/replays/continue?name=r").Code)
	require.Contains(t, get(t, admin, "/replays").Body.String(), `"state":"running"`)
	require.Equal(t, http.StatusNotFound, post("/replays/stop?name=other").Code)
	require.Contains(t, log.String(), "replay=r&listener=search")
	require.NotContains(t, log.String(), "secret")
}
