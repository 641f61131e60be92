package httptx_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// refusing is a store that answers with an error of a driver, or not before its context ends.
// It keeps the time that each statement has.
type refusing struct {
	*outboxtest.Store
	hangs bool
	given *time.Duration
}

func (f refusing) fail(ctx context.Context) error {
	if at, bounded := ctx.Deadline(); bounded {
		*f.given = time.Until(at)
	}
	if f.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New("failed to connect to `user=shop database=orders`: 10.1.2.3:5432: dial error")
}

func (f refusing) Stats(ctx context.Context, _ outbox.DB, _ time.Time, _ []outbox.EventKind) (outbox.StoreStats, error) {
	return outbox.StoreStats{}, f.fail(ctx)
}

func (f refusing) QueryDead(ctx context.Context, _ outbox.DB, _ outbox.DeadRowsQuery) ([]outbox.DeadLetter, error) {
	return nil, f.fail(ctx)
}

func (f refusing) Nodes(ctx context.Context, _ outbox.DB) ([]outbox.Node, error) {
	return nil, f.fail(ctx)
}

func refusingAdmin(t *testing.T, store refusing, log *bytes.Buffer) http.Handler {
	t.Helper()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return httptx.Admin(ob, httptx.Access{Authorize: operator, Logger: slog.New(slog.NewTextHandler(log, nil))})
}

func TestTheTextOfADatabaseGoesToTheLogAlone(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var given time.Duration
	admin := refusingAdmin(t, refusing{Store: outboxtest.NewStore(), given: &given}, &log)
	for request, bound := range map[string]time.Duration{
		"GET /stats": httptx.AdminTimeout, "GET /nodes": httptx.AdminTimeout, "GET /dead-letters": httptx.AdminTimeout,
		"GET /dead-letters/groups": httptx.AdminTimeout, "POST /dead-letters/replay": httptx.AdminBulkTimeout,
		"DELETE /dead-letters?event_type=x": httptx.AdminBulkTimeout,
	} {
		log.Reset()
		given = 0
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		require.Equal(t, http.StatusInternalServerError, w.Code, request)
		var answer struct {
			Error string `json:"error"`
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		id := regexp.MustCompile(`^the database returned an error; the log of this service has its text, with the id (\w{8})$`).FindStringSubmatch(answer.Error)
		require.NotNil(t, id, answer.Error)
		require.Contains(t, log.String(), "id="+id[1])
		require.Contains(t, log.String(), "10.1.2.3:5432")
		require.Greater(t, given, bound/2, "%s has a time limit", request)
		require.LessOrEqual(t, given, bound, request)
	}
}

func TestARequestThatTakesTooLongIsUnavailable(t *testing.T) {
	t.Parallel()
	var given time.Duration
	admin := refusingAdmin(t, refusing{outboxtest.NewStore(), true, &given}, &bytes.Buffer{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	admin.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/stats", nil))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Contains(t, w.Body.String(), "the database did not answer in time")
}

// readable is a database that answers reads and takes no writes, as a standby does.
type readable struct{ *outboxtest.Store }

func (readable) Announce(context.Context, outbox.DB, outbox.Node, time.Duration) error {
	return errors.New("cannot execute INSERT in a read-only transaction")
}

func TestAProcessWhoseWritesFailIsNotReady(t *testing.T) {
	t.Parallel()
	for _, mode := range []outbox.Mode{outbox.WriterOnly{}, outbox.SingleNode{}} {
		synctest.Test(t, func(t *testing.T) {
			store := readable{outboxtest.NewStore()}
			ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: mode, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			require.NoError(t, ob.Start(t.Context()))
			health := httptx.Health(httptx.HealthConfig{Outbox: ob})
			time.Sleep(time.Second)
			require.Equal(t, http.StatusOK, get(t, health, "/").Code, "writes that failed may have met a restart")
			time.Sleep(time.Minute)
			got := get(t, health, "/")
			require.Equal(t, http.StatusServiceUnavailable, got.Code)
			require.Contains(t, got.Body.String(), "the database did not take the last ")
			require.NotContains(t, got.Body.String(), "INSERT")
			require.NoError(t, ob.Close(t.Context()))
		})
	}
}

// A letter whose unique key is taken is no failure of the database.
func TestAReplayNamesTheLettersThatStayDead(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for _, id := range []string{"first", "other", "second"} {
		key := map[bool]string{true: "j", false: "k"}[id == "other"]
		_, err := ob.Writer().WriteUnmanaged(t.Context(), store.DB(), []outbox.Envelope{{EventID: id, EventType: "Said", Payload: outbox.JSON(1), UniqueKey: key}})
		require.NoError(t, err)
		if row, _ := store.Row(id); id != "second" {
			row.Status, row.DoneAt = outbox.StatusDead, time.Now().UTC().Add(-time.Hour)
			require.True(t, store.SetRow(id, row.RawRow))
		}
	}
	admin := httptx.Admin(ob, httptx.Access{Authorize: operator, Logger: slog.New(slog.DiscardHandler)})
	post := func(path string) (int, map[string]any) {
		answer := httptest.NewRecorder()
		admin.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
		var body map[string]any
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &body))
		return answer.Code, body
	}
	const stays = "1 dead letters stay dead, first first: a pending event has their unique key; replay them when that event is delivered"
	status, body := post("/dead-letters/replay")
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, map[string]any{"error": stays, "replayed": 1.0}, body)
	status, body = post("/dead-letters/first/replay")
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, map[string]any{"error": stays}, body)
}
