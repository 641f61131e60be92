// Package dashboard_test holds the Go code of docs/how-to/dashboard.md.
package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
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
