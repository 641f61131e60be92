package httptx_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// operator may do everything.
func operator(*http.Request) (string, httptx.Role) {
	return "ada", httptx.ReadPayloads | httptx.Operate
}

// adminOf is the administration of a table with these dead letters.
func adminOf(t *testing.T, db *testdb.DB, letters ...outbox.Envelope) (http.Handler, *outbox.Outbox) {
	t.Helper()
	store, err := sqlstore.Detect(t.Context(), db.DB)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for _, env := range letters {
		env.OccurredAt = time.Now().Add(-time.Minute).UTC().Truncate(time.Microsecond)
		env.AvailableAt = env.OccurredAt
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, store.Insert(t.Context(), tx, []outbox.Envelope{env}, "", time.Now()))
		require.NoError(t, tx.Commit())
		_, err = store.Mark(t.Context(), db.DB, outbox.OutcomeDead, []outbox.Mark{{EventID: env.EventID, Error: "boom", Attempts: 1}})
		require.NoError(t, err)
	}
	return httptx.Admin(ob, httptx.Access{Authorize: operator, Logger: slog.New(slog.DiscardHandler)}), ob
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

func TestAPayloadOfBytesIsBase64(t *testing.T) {
	t.Parallel()
	letter := outbox.Envelope{EventID: "b-1", EventType: "T", AggregateType: outbox.Global, Payload: outbox.Bytes("a/b", []byte{0, 0xff}).WithVersion(3)}
	admin, _ := adminOf(t, testdb.Open(t, testdb.Main()[2]), letter)
	for _, path := range []string{"/dead-letters/b-1", "/events/b-1"} {
		body := get(t, admin, path).Body.String()
		require.Contains(t, body, `"payload_version":3,"content_type":"a/b","payload_base64":"AP8="`, path)
		require.NotContains(t, body, `"payload":`, path)
		require.NotContains(t, body, outbox.HeaderContentType, path)
	}
}

// It runs alone, because it measures the process.
//
//nolint:paralleltest // see above.
func TestListsTakeNoMemoryForPayloadsAndHeaders(t *testing.T) {
	for _, target := range testdb.Main() {
		t.Run(target.Name, func(t *testing.T) {
			const letters = 32
			var large []outbox.Envelope
			for i := range letters {
				large = append(large, outbox.Envelope{
					EventID: fmt.Sprint(i), EventType: "Big", AggregateType: "Order",
					Payload: outbox.JSON(strings.Repeat("a", 1_000_000)), Headers: map[string]string{"k": strings.Repeat("b", 60_000)},
				})
			}
			admin, _ := adminOf(t, testdb.Open(t, target), large...)
			paths := []string{"/dead-letters?limit=200", "/events?limit=200", "/events?limit=200&status=DEAD&event_type=none", "/dead-letters/groups"}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var group sync.WaitGroup
			for range 4 {
				for _, path := range paths {
					group.Go(func() { assert.Equal(t, http.StatusOK, get(t, admin, path).Code) }) // require may not end a test from here
				}
			}
			group.Wait()
			runtime.ReadMemStats(&after)
			// The payloads have 32 MB, and are listed 8 times.
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(letters<<20), "bytes")
			require.Contains(t, get(t, admin, "/dead-letters").Body.String(), `"payload_bytes":1000002`)
		})
	}
}

func TestAPayloadThatIsNestedDeepIsNotIndented(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 4000) + strings.TrimSuffix(strings.Repeat("0,", 500_000), ",") + strings.Repeat("]", 4000)
	admin, _ := adminOf(t, testdb.Open(t, testdb.Main()[2]),
		outbox.Envelope{EventID: "deep", EventType: "Deep", AggregateType: "Order", Payload: outbox.RawJSON(deep)},
		outbox.Envelope{EventID: "flat", EventType: "Flat", AggregateType: "Order", Payload: outbox.RawJSON(`{"a":[1]}`)})
	for _, path := range []string{"/events/", "/dead-letters/"} {
		body := get(t, admin, path+"deep?pretty").Body.String()
		require.Contains(t, body, deep)
		require.Less(t, len(body), len(deep)+1000)
		require.Contains(t, get(t, admin, path+"flat?pretty").Body.String(), "\n  \"payload\": {\n    \"a\": [\n      1\n    ]\n  }\n}\n")
	}
}
