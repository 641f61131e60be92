// Package dashboard_test holds the Go code of docs/how-to/dashboard.md.
package dashboard_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/docs/code/shop"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

type user struct {
	Name   string
	groups map[string]bool
}

func (u user) InGroup(name string) bool { return u.groups[name] }

// userOf stands for the service's own sessions.
func userOf(r *http.Request) user {
	return user{Name: "ada", groups: map[string]bool{r.Header.Get("Group"): true}}
}

func addPage(mux *http.ServeMux, server *http.Server, ob *outbox.Outbox) (*dashboard.Dashboard, error) {
	page, err := dashboard.New(dashboard.Config{
		Outboxes: map[string]*outbox.Outbox{"orders": ob},
		Access: httptx.Access{
			Authorize: func(r *http.Request) (user string, role httptx.Role) {
				switch u := userOf(r); { // your own session or proxy knows
				case u.InGroup("operators"):
					return u.Name, httptx.ReadPayloads | httptx.Operate
				case u.InGroup("support"):
					return u.Name, httptx.View
				default:
					return "", 0 // 403
				}
			},
		},
	})
	if err != nil {
		return nil, err
	}
	mux.Handle("/outbox/", http.StripPrefix("/outbox", page))
	server.RegisterOnShutdown(page.EndStreams) // live overviews would hold up Shutdown
	return page, nil
}

// roleOf is that of docs/how-to/web/admin.md.
func roleOf(r *http.Request) (user string, role httptx.Role) {
	user, password, _ := r.BasicAuth()
	if user == "ada" && password == "secret" { // ask your own user store
		return user, httptx.Operate
	}
	return "", 0
}

// askForPassword answers 401 to everybody without a role: a browser then asks for a password.
func askForPassword(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, role := roleOf(r); role == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="outbox"`)
			http.Error(w, "name and password, please", http.StatusUnauthorized)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// Settings are the app's own configuration.
type Settings struct{ CSRFKey []byte }

// newApp gets your *sql.DB, net.Listener and Settings as options.
func newApp(options ...fx.Option) *fx.App {
	return fx.New(
		fx.Options(options...),
		outboxfx.Module,
		fx.Provide(newPage),
		fx.Invoke(serve),
	)
}

func newPage(ob *outbox.Outbox, s Settings) (*dashboard.Dashboard, error) {
	return dashboard.New(dashboard.Config{
		Outboxes: map[string]*outbox.Outbox{"orders": ob},
		Access:   httptx.Access{Authorize: roleOf},
		CSRFKey:  s.CSRFKey, // the same in all replicas
	})
}

// serve starts after the outbox, so fx stops it first.
func serve(lc fx.Lifecycle, listener net.Listener, page *dashboard.Dashboard) {
	mux := http.NewServeMux()
	mux.Handle("/outbox/", askForPassword(http.StripPrefix("/outbox", page)))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(page.EndStreams)
	lc.Append(fx.StartStopHook(
		func() { go func() { _ = server.Serve(listener) }() },
		func(ctx context.Context) error {
			return errors.Join(server.Shutdown(ctx), page.Wait(ctx))
		},
	))
}

func TestAnAppAsksForAPassword(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	app := newApp(
		fx.NopLogger, fx.Supply(shop.Open(t).DB, fx.Annotate(listener, fx.As(new(net.Listener))), Settings{}),
	)
	require.NoError(t, app.Start(t.Context()))
	get := func(password string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/outbox/orders/", nil)
		require.NoError(t, err)
		if password != "" {
			request.SetBasicAuth("ada", password)
		}
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response
	}
	for password, want := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, "secret": http.StatusOK} {
		require.Equal(t, want, get(password).StatusCode, password)
	}
	require.Equal(t, `Basic realm="outbox"`, get("").Header.Get("WWW-Authenticate"))
	require.NoError(t, app.Stop(t.Context()))
}

// stop ends the service.
func stop(ctx context.Context, server *http.Server, page *dashboard.Dashboard, ob *outbox.Outbox) error {
	err := server.Shutdown(ctx)
	err = errors.Join(err, page.Wait(ctx)) // replays, deletions and purges that run
	return errors.Join(err, ob.Close(ctx))
}

func TestTheGroupDecidesWhoSeesThePage(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
	require.NoError(t, err)
	mux, server := http.NewServeMux(), new(http.Server)
	page, err := addPage(mux, server, ob)
	require.NoError(t, err)
	for group, want := range map[string]int{"operators": http.StatusOK, "support": http.StatusOK, "sales": http.StatusForbidden} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/outbox/orders/", nil)
		request.Header.Set("Group", group)
		recorder := httptest.NewRecorder()
		mux.ServeHTTP(recorder, request)
		require.Equal(t, want, recorder.Code, group)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, stop(ctx, server, page, ob))
}
