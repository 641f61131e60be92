package httptx_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// found is an answer to GET /events.
type found struct {
	Events []struct {
		ID       string     `json:"event_id"`
		Error    string     `json:"last_error"`
		Attempts int        `json:"attempts"`
		Due      time.Time  `json:"available_at"`
		Lease    string     `json:"lease"`
		LeasedAt *time.Time `json:"leased_at"`
	} `json:"events"`
	Next    string `json:"next"`
	Looked  int    `json:"looked_at"`
	Missing *struct {
		For    string `json:"for"`
		Option string `json:"option"`
		DDL    string `json:"ddl"`
	} `json:"missing_index"`
}

func find(t *testing.T, admin http.Handler, pairs ...string) (f found) {
	t.Helper()
	query := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		query.Set(pairs[i], pairs[i+1])
	}
	w := get(t, admin, "/events?"+query.Encode())
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &f))
	return f
}

func TestAnAnswerSaysHowEventsWereFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		admin, _ := adminOf(t, db)
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		at := time.Now().Add(-time.Minute).UTC().Truncate(time.Microsecond)
		envs := make([]outbox.Envelope, outbox.SearchLimit+500)
		for i := range envs {
			envs[i] = outbox.Envelope{
				EventID: fmt.Sprintf("e%05d", i), EventType: "T", AggregateType: outbox.Global, AggregateID: fmt.Sprint("o-", i),
				Payload: outbox.RawJSON("{}"), OccurredAt: at, AvailableAt: at,
			}
		}
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, store.Insert(t.Context(), tx, envs, "", time.Now()))
		require.NoError(t, tx.Commit())
		next := at.Add(time.Hour)
		_, err = store.Mark(t.Context(), db.DB, outbox.OutcomeRetry, []outbox.Mark{{EventID: "e00001", Error: "100% <b>full</b>", Attempts: 2, AvailableAt: next}})
		require.NoError(t, err)
		_, err = store.Claim(t.Context(), db.DB, outbox.ClaimQuery{Now: time.Now(), Limit: 1, Lease: "node-1/7", LeaseDuration: time.Minute, EventIDs: []string{"e00002"}})
		require.NoError(t, err)

		require.Len(t, find(t, admin, "id_prefix", "e0001").Events, 10)
		failed := find(t, admin, "error_text", "100% <B>", "status", "DELAYED")
		require.Len(t, failed.Events, 1)
		require.Equal(t, "100% <b>full</b>", failed.Events[0].Error)
		require.Equal(t, 2, failed.Events[0].Attempts)
		require.True(t, failed.Events[0].Due.Equal(next))
		leased := find(t, admin, "status", "LEASED")
		require.Len(t, leased.Events, 1)
		require.Equal(t, "node-1/7", leased.Events[0].Lease)
		require.NotNil(t, leased.Events[0].LeasedAt)

		slow := find(t, admin, "aggregate_id", "o-0")
		require.Empty(t, slow.Events)
		require.Equal(t, outbox.SearchLimit, slow.Looked)
		require.Equal(t, "sqlstore.WithSearchIndex()", slow.Missing.Option)
		require.Equal(t, "an aggregate id", slow.Missing.For)
		require.Contains(t, slow.Missing.DDL, "idx_outbox_event_search")
		rest := find(t, admin, "aggregate_id", "o-0", "after", slow.Next)
		require.Len(t, rest.Events, 1)
		require.Equal(t, 500, rest.Looked)
		require.Nil(t, rest.Missing)
	})
}
