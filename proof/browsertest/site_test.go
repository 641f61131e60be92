package browsertest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// visit is a tab on a served dashboard.
type visit struct {
	t      *testing.T
	ctx    context.Context
	db     *testdb.DB
	outbox *outbox.Outbox
	url    string // of the outbox, with a slash at its end

	mu       sync.Mutex
	problems []string // errors in the browser's console
}

// open serves an outbox with these rows under a prefix, and opens a tab.
func open(t *testing.T, rows ...dashtest.Row) *visit {
	t.Helper()
	v := &visit{t: t, db: testdb.Open(t, testdb.Main()[2])} // SQLite: pages are the same on each database
	store := sqlstore.SQLite()
	require.NoError(t, store.CreateSchema(t.Context(), v.db.DB))
	require.NoError(t, dashtest.Insert(t.Context(), v.db.DB, v.db.Kind, rows...))
	var err error
	v.outbox, err = outbox.New(outbox.Config{DB: v.db.DB, Store: store, Logger: slog.New(slog.DiscardHandler), Purge: &outbox.PurgeOptions{Retention: time.Hour}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = v.outbox.Close(context.Background()) }) //nolint:usetesting // it has ended by then.
	page, err := dashboard.New(dashboard.Config{
		Outboxes: map[string]*outbox.Outbox{"shop": v.outbox}, Interval: 200 * time.Millisecond,
		Access: httptx.Access{
			Authorize: func(*http.Request) (string, httptx.Role) { return "ada", httptx.ReadPayloads | httptx.Operate },
			Logger:    slog.New(slog.DiscardHandler),
		},
	})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/ops/outbox/", http.StripPrefix("/ops/outbox", page))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		page.EndStreams()
		require.NoError(t, page.Wait(context.Background())) //nolint:usetesting // it has ended by then.
		server.Close()
	})
	v.url = server.URL + "/ops/outbox/shop/"
	v.tab()
	return v
}

// tab opens one that notes each error in the console: of a script, or of the
// Content-Security-Policy.
func (v *visit) tab() {
	v.t.Helper()
	ctx, end := chromedp.NewContext(browser)
	v.t.Cleanup(end)
	require.NoError(v.t, chromedp.Do(ctx)) // opens it
	v.ctx = ctx
	require.NoError(v.t, chromedp.Listen(ctx, func(event any) {
		text := ""
		switch event := event.(type) {
		case *runtime.EventExceptionThrown:
			text = event.ExceptionDetails.Text
		case *log.EventEntryAdded:
			text = event.Entry.Text
		case *runtime.EventConsoleAPICalled:
			text = fmt.Sprint("console.", event.Type)
		}
		if text != "" {
			v.mu.Lock()
			v.problems = append(v.problems, text)
			v.mu.Unlock()
		}
	}))
	command(v, log.Enable, cdp.Empty{})
	command(v, runtime.Enable, cdp.Empty{})
}

// command sends one to the tab.
func command[P, R any](v *visit, c cdp.Command[P, R], params P) {
	v.t.Helper()
	_, err := chromedp.Call(v.ctx, c, params)
	require.NoError(v.t, err)
}

func (v *visit) do(actions ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, time.Minute)
	defer cancel()
	require.NoError(v.t, chromedp.Do(ctx, actions...))
}

// to opens a page.
func (v *visit) to(page string) {
	v.t.Helper()
	v.do(chromedp.Navigate(v.url+page), chromedp.WaitReady("footer"))
}

// clean checks that the console has no error.
func (v *visit) clean(where string) {
	v.t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	require.Empty(v.t, v.problems, where)
}

// eval evaluates an expression in the page.
func eval[T any](v *visit, expression string) T {
	v.t.Helper()
	value, err := chromedp.Run(v.ctx, chromedp.Evaluate[T](expression))
	require.NoError(v.t, err)
	return value
}

// see waits until the page is loaded and its text contains this one.
func (v *visit) see(text string) {
	v.t.Helper()
	var body string
	ok := v.until(func() bool {
		body, _ = chromedp.Run(v.ctx, chromedp.Evaluate[string]("document.readyState === 'complete' && !window.left ? document.body.innerText : ''"))
		return contains(body, text)
	})
	require.True(v.t, ok, "%q is not to be seen in %q", text, body)
}

// click clicks on what has this text, and waits for the next page's text.
func (v *visit) click(text, then string) {
	v.t.Helper()
	eval[bool](v, "window.left = true") // the next page has a window of its own
	v.do(chromedp.Click(`//*[self::a or self::button][contains(normalize-space(.), "` + text + `")]`))
	v.see(then)
}

func (v *visit) until(condition func() bool) bool {
	deadline := time.Now().Add(30 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}
