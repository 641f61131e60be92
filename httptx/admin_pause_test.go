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

// The pause of a key needs an end. To resume the kind leaves the pause of the key.
func TestAKeyIsPausedAndResumedByTheAdmin(t *testing.T) {
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
	const key = "event_type=Sent&aggregate_type=Hook&aggregate_id=7"
	refused := post("/pause?" + key)
	require.Equal(t, http.StatusBadRequest, refused.Code)
	require.Contains(t, refused.Body.String(), "is required with aggregate_id")
	paused := post("/pause?for=1h&" + key)
	require.Less(t, paused.Code, 300, paused.Body)
	require.Contains(t, log.String(), "Hook/Sent of 7")
	require.Contains(t, get(t, admin, "/pauses").Body.String(), `{"event_type":"Sent","aggregate_type":"Hook","aggregate_id":"7",`)
	require.Less(t, post("/resume?event_type=Sent&aggregate_type=Hook").Code, 300)
	require.Contains(t, get(t, admin, "/pauses").Body.String(), `"aggregate_id":"7"`)
	require.Less(t, post("/resume?"+key).Code, 300)
	require.NotContains(t, get(t, admin, "/pauses").Body.String(), "aggregate_id")
}
