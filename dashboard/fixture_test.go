package dashboard_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

const prefix = "/ops/outbox"

// site is a served dashboard on a SQLite file.
type site struct {
	t       *testing.T
	db      *testdb.DB
	outbox  *outbox.Outbox
	page    *dashboard.Dashboard
	handler http.Handler
	log     *buffer
	mu      sync.Mutex
	audited []httptx.AuditEntry
	// User and Role are those of the requests that follow.
	user string
	role httptx.Role
}

// buffer is a log.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

const everything = httptx.ReadPayloads | httptx.Operate

// newSite serves an outbox with these rows, under the prefix.
func newSite(t *testing.T, rows []dashtest.Row, change ...func(*dashboard.Config)) *site {
	t.Helper()
	s := &site{t: t, db: testdb.Open(t, testdb.Main()[2]), log: &buffer{}, user: "ada", role: everything}
	s.outbox = newOutbox(t, s.db)
	require.NoError(t, dashtest.Insert(t.Context(), s.db.DB, s.db.Kind, rows...))
	config := dashboard.Config{
		Timeout:  10 * time.Minute, // this machine may be slow
		Outboxes: map[string]*outbox.Outbox{"shop": s.outbox},
		Access: httptx.Access{
			Authorize: func(*http.Request) (string, httptx.Role) { return s.user, s.role },
			Audit: func(_ context.Context, entry httptx.AuditEntry) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.audited = append(s.audited, entry)
			},
			Logger: slog.New(slog.NewTextHandler(s.log, nil)),
		},
	}
	for _, fn := range change {
		fn(&config)
	}
	var err error
	s.page, err = dashboard.New(config)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.page.EndStreams()
		require.NoError(t, s.page.Wait(context.Background())) //nolint:usetesting // it has ended by then.
	})
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, s.page))
	s.handler = mux
	return s
}

func newOutbox(t *testing.T, db *testdb.DB) *outbox.Outbox {
	t.Helper()
	store := sqlstore.SQLite()
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	ob, err := outbox.New(outbox.Config{
		DB: db.DB, Store: store, Logger: slog.New(slog.DiscardHandler), Purge: &outbox.PurgeOptions{Retention: 10 * time.Second},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = ob.Close(context.Background()) }) //nolint:usetesting // it has ended by then.
	return ob
}

type answer struct {
	*http.Response
	body string
}

func (s *site) send(method, path string, form url.Values, header ...string) answer {
	s.t.Helper()
	request := httptest.NewRequestWithContext(s.t.Context(), method, prefix+path, strings.NewReader(form.Encode()))
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	s.handler.ServeHTTP(recorder, request)
	response := recorder.Result()
	body, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return answer{response, string(body)}
}

// get returns a page, and checks its status.
func (s *site) get(path string, status ...int) string {
	s.t.Helper()
	got := s.send(http.MethodGet, path, nil)
	want := append(status, http.StatusOK)[0]
	require.Equal(s.t, want, got.StatusCode, "%s: %s", path, got.body)
	return got.body
}

var (
	forms  = regexp.MustCompile(`(?s)<form method="post".*?</form>`)
	fields = regexp.MustCompile(`<input type="hidden" name="([a-z_]+)" value="([^"]*)">`)
)

// form is the first form of the page whose text contains all of these, with its hidden
// fields.
func (s *site) form(body string, texts ...string) url.Values {
	s.t.Helper()
next:
	for _, form := range forms.FindAllString(body, -1) {
		for _, text := range texts {
			if !strings.Contains(form, text) {
				continue next
			}
		}
		values := url.Values{}
		for _, field := range fields.FindAllStringSubmatch(form, -1) {
			values.Add(field[1], field[2])
		}
		return values
	}
	require.Fail(s.t, "no such form", "%q in %s", texts, body)
	return nil
}

// with adds fields to a form.
func with(form url.Values, pairs ...string) url.Values {
	changed := url.Values{}
	for name, values := range form {
		changed[name] = append([]string(nil), values...)
	}
	for i := 0; i < len(pairs); i += 2 {
		changed.Add(pairs[i], pairs[i+1])
	}
	return changed
}

// act confirms a change, carries it out, and returns the pages: of the confirmation, and of
// the action that has ended.
func (s *site) act(form url.Values) (confirmation, action string) {
	s.t.Helper()
	asked := s.send(http.MethodPost, "/shop/confirm", form)
	require.Equal(s.t, http.StatusOK, asked.StatusCode, asked.body)
	confirmed := with(s.form(asked.body, "Yes, "), "action", form.Get("action"))
	if number := confirmed.Get("number"); number != "" {
		confirmed.Set("typed", number)
	}
	return asked.body, s.done(confirmed)
}

// done carries a change out, and returns the page of the action when it has ended.
func (s *site) done(form url.Values) string {
	s.t.Helper()
	form["action"] = form["action"][:1]
	sent := s.send(http.MethodPost, "/shop/act", form)
	require.Equal(s.t, http.StatusSeeOther, sent.StatusCode, sent.body)
	require.NoError(s.t, s.page.Wait(s.t.Context()))
	return s.get("/shop/" + sent.Header.Get("Location"))
}

func (s *site) entries() []httptx.AuditEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.audited
	s.audited = nil
	return list
}

func (s *site) dead() int {
	s.t.Helper()
	n, err := s.outbox.DeadLetters().Count(s.t.Context(), outbox.DeadFilter{})
	require.NoError(s.t, err)
	return int(n)
}
